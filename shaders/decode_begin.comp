#version 460
// Opens a token: the state's residual becomes the embedding of the token, or a given vector; all other sums become 0, and
// the turns of its position are computed once for all layers.
//
// Any grid along x, a sequence each along y; thread t handles every so many quads of features and words of the sums.

#define BUFFERS 8
#define SUMS_ANY
#include "decode.glsl"
#include "angle.h"

layout(constant_id = 13) const uint DTYPE_X = DTYPE_F32; // what the embedding is rounded to, or the vector's

const uint STATE = 0u, INDEX = 1u, X = 2u, IDS = 3u, CODES = 4u, SCALES = 5u, BIASES = 6u, FREQS = 7u;

float rounded(float x) { return rounded_as(x, DTYPE_X); }

vec4 embedding(uint quad) {
    uint token = min(U32s(pc.address[IDS]).v[SEQUENCE], pc.p.vocabulary - 1u);
    uint codes = U32s(pc.address[CODES]).v[token * (HIDDEN / 8u) + (quad >> 1)] >> ((quad & 1u) * 16u);
    uint group = token * (HIDDEN / GROUP) + quad * 4u / GROUP;
    float scale = rounded(load_float(pc.address[SCALES], group, DTYPE_W)), bias = rounded(load_float(pc.address[BIASES], group, DTYPE_W));
    vec4 x = scale * vec4(codes & 15u, (codes >> 4) & 15u, (codes >> 8) & 15u, (codes >> 12) & 15u) + bias;
    return vec4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

void main() {
    uint first = gl_WorkGroupID.x * THREADS + thread(), step = gl_NumWorkGroups.x * THREADS;
    uint now = min(uint(max(I32s(pc.address[INDEX]).v[SEQUENCE], 0)), pc.p.capacity - 1u);
    if (first == 0u) U32s(state_position()).v[0] = now;
    // The last workgroup, which has the least to do otherwise.
    bool turns = gl_WorkGroupID.x + 1u == gl_NumWorkGroups.x;
    for (uint pair = thread(); turns && pair < HEAD_DIM / 2u; pair += THREADS) {
        Scaled frequency;
        if (pc.address[FREQS] != 0ul) frequency = scaled_reciprocal(scaled_float(F32s(pc.address[FREQS]).v[pair]));
        else frequency = rope_frequency(pair, HEAD_DIM, pc.p.log2_base);
        uint turn = turn_at(int(now), turns_per_position(frequency, pc.p.rope_scale));
        F32x2s(state_turns()).v[pair] = vec2(turn_cos(turn), turn_sin(turn));
    }
    for (uint quad = first; quad < QUADS; quad += step) {
        vec4 x = pc.address[X] != 0ul ? load_quad(pc.address[X], SEQUENCE * QUADS + quad, DTYPE_X) : embedding(quad);
        [[unroll]] for (uint i = 0; i < 4u; i++) sum_store(state_before(0u), 4u * quad + i, sum_whole(x[i]));
    }
    for (uint i = first; i < HIDDEN * (COPIES - 1u); i += step) sum_store(state_before(0u), HIDDEN + i, NO_SUM);
    for (uint i = first; i < HIDDEN * COPIES; i += step) {
        [[unroll]] for (uint n = 1; n < BEFORE_TURNS; n++) sum_store(state_before(n), i, NO_SUM);
        [[unroll]] for (uint n = 0; n < TURNS; n++) sum_store(state_after(n), i, NO_SUM);
    }
    // Those of the last layer, where each clears the one before; the memory of those was zero from the start.
    for (uint i = first; i < SQUARES; i += step) sum_store(state_squares(LAYER), i, NO_SUM);
    for (uint row = 0; row < KV_HEADS * PAIRS; row++)
        for (uint i = first; i <= now; i += step) U32x2s(state_scores(LAYER)).v[row * pc.p.capacity + i] = uvec2(0);
}
