#version 460
// batch_norm: y = x / rms(x) * w of all sequences in float16, in the order of A ([8 rows][32 features][lane]), for a head whose workgroups
// have no room for that in shared memory. Workgroups: (any number, blocks of 8 rows); those of a block share its features, and each adds up
// the squares of all of them.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 2
#define PUSH DecodePush
#include "batch.glsl"

const uint STATE = 0u, NORM = 1u;

shared float squares[8u * WARPS];

void main() {
    uint rows = gl_WorkGroupID.y;
    float square = 0.0;
    for (uint first = 0; first < HIDDEN / 16u; first += WARPS) { // all warps take as many turns
        uint block = first + warp();
        vec4 x = block < HIDDEN / 16u ? x_of(rows, block) : vec4(0);
        square += dot(x, x);
    }
    square = four_sum(square);
    if (lane_column() == 0u) squares[lane_row() * WARPS + warp()] = square;
    barrier();
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        sum += squares[lane_row() * WARPS + i];
    float scale = inversesqrt(sum * (1.0 / float(HIDDEN)) + pc.p.eps);
    for (uint two = gl_WorkGroupID.x * WARPS + warp(); two < HIDDEN / 32u; two += gl_NumWorkGroups.x * WARPS) {
        uvec2 first = half_four(x_of(rows, 2u * two) * scale * norm_of(pc.address[NORM], 2u * two));
        uvec2 second = half_four(x_of(rows, 2u * two + 1u) * scale * norm_of(pc.address[NORM], 2u * two + 1u));
        U32x4s(in_state(AT_NORMED)).v[(rows * (HIDDEN / 32u) + two) * 32u + lane()] = uvec4(first, second);
    }
}
