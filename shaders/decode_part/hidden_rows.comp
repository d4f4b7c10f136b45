#version 460
// The end of a decoder whose next layers are on another device: the residual of each row, rounded to DTYPE_OUT. It is in the order of
// sums, see decode_batched/batch.glsl. Any grid along x, a row each along y.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 2
#define PUSH DecodePush
#include "decode_batched/batch.glsl"

layout(constant_id = 11) const uint DTYPE_OUT = DTYPE_F32;

const uint STATE = 0u, OUT = 1u;

// Two neighbouring features; column is even.
void store_pair(uint row, uint column, vec2 x) {
    uint at = (row * HIDDEN + column) / 2u;
    if (DTYPE_OUT == DTYPE_F32) U32x2s(pc.address[OUT]).v[at] = floatBitsToUint(x);
    else if (DTYPE_OUT == DTYPE_F16) U32s(pc.address[OUT]).v[at] = f16_bits(x.x) | f16_bits(x.y) << 16;
    else U32s(pc.address[OUT]).v[at] = bf16_bits(x.x) | bf16_bits(x.y) << 16;
}

void main() {
    uint row = gl_WorkGroupID.y, first = gl_WorkGroupID.x * THREADS + thread(), step = gl_NumWorkGroups.x * THREADS;
    uint rows = row / 8u, row_lane = row % 8u * 4u;
    for (uint i = first; i < HIDDEN / 4u; i += step) { // four neighbours have the 16 columns of a block
        uint block = i / 4u, c = i & 3u;
        vec4 x = F32x4s(in_state(x_at(rows, block, row_lane + c))).v[0];
        store_pair(row, block * 16u + 2u * c, x.xy);
        store_pair(row, block * 16u + 8u + 2u * c, x.zw);
    }
}
