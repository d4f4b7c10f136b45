#version 460
// Opens a token of each sequence: the residual becomes the embedding of the token, or a given vector, and the turns of its
// position are computed once for all layers. Any grid along x, a sequence each along y.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#include "batch.glsl"
#include "angle.h"

layout(constant_id = 14) const uint DTYPE_X = DTYPE_F32; // what the embedding is rounded to, or the vector's

const uint STATE = 0u, INDEX = 1u, X = 2u, IDS = 3u, CODES = 4u, SCALES = 5u, BIASES = 6u, FREQS = 7u;

float rounded(float x) { return rounded_as(x, DTYPE_X); }

vec4 embedding(uint quad) {
    uint token = min(U32s(pc.address[IDS]).v[sequence], pc.p.vocabulary - 1u);
    uint codes = U32s(pc.address[CODES]).v[token * (HIDDEN / 8u) + (quad >> 1)] >> ((quad & 1u) * 16u);
    uint group = token * (HIDDEN / GROUP) + quad * 4u / GROUP;
    float scale = rounded(load_float(pc.address[SCALES], group, DTYPE_W)), bias = rounded(load_float(pc.address[BIASES], group, DTYPE_W));
    vec4 x = scale * vec4(codes & 15u, (codes >> 4) & 15u, (codes >> 8) & 15u, (codes >> 12) & 15u) + bias;
    return vec4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

void main() {
    sequence = gl_WorkGroupID.y;
    uint first = gl_WorkGroupID.x * THREADS + thread(), step = gl_NumWorkGroups.x * THREADS;
    uint now = min(uint(max(I32s(pc.address[INDEX]).v[sequence], 0)), pc.p.capacity - 1u);
    if (first == 0u) U32s(in_state(0u)).v[0] = now;
    bool turns = gl_WorkGroupID.x + 1u == gl_NumWorkGroups.x;
    for (uint pair = thread(); turns && pair < HEAD_DIM / 2u; pair += THREADS) {
        Scaled frequency;
        if (pc.address[FREQS] != 0ul) frequency = scaled_reciprocal(scaled_float(F32s(pc.address[FREQS]).v[pair]));
        else frequency = rope_frequency(pair, HEAD_DIM, pc.p.log2_base);
        uint turn = turn_at(int(now), turns_per_position(frequency, pc.p.rope_scale));
        F32x2s(in_state(AT_TURNS)).v[pair] = vec2(turn_cos(turn), turn_sin(turn));
    }
    for (uint quad = first; quad < QUADS; quad += step) {
        vec4 x = pc.address[X] != 0ul ? load_quad(pc.address[X], sequence * QUADS + quad, DTYPE_X) : embedding(quad);
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            Sum s = sum_of(x[i]);
            Shared2(in_state(AT_SUMS)).v[4u * quad + i] = s;
            F32s(in_state(AT_X)).v[4u * quad + i] = sum_value(s);
        }
    }
}
