#version 460
// Opens a token of each sequence. The residual becomes the embedding of the token, or a given vector; what the first
// norm needs of it is written too. The rope angles of its position are computed once for all layers of a rope. The words
// that layers exchange are marked as not there yet. Any grid along x, a sequence each along y.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 10
#define PUSH DecodeBeginPush
#define HYBRID_STATE
layout(constant_id = 18) const uint GATES = 0u; // what hybrid.comp has of them
layout(constant_id = 19) const uint NET_COLUMNS = 0u;
#include "batch.glsl"
#include "include/math/angle.h"

const uint STATE = 0u, INDEX = 1u, NORM = 2u, X = 3u, IDS = 4u, CODES = 5u, SCALES = 6u, BIASES = 7u,
           FREQS = 8u;     // and that of the other rope
const uint FIRST_TAG = 1u; // tag_of_layer() of the first one (matmul.glsl)

layout(constant_id = 11) const uint DTYPE_X = DTYPE_F32; // the dtype to which the embedding is rounded, or the vector's
layout(constant_id = 12) const uint TOKENS = 1u;         // rows of each sequence
layout(constant_id = 13) const uint PAGE = 0u;           // positions of a page of the cache; 0 where it has none
#define OPEN_ID 14
#include "include/rope_constants.glsl"
layout(constant_id = 17) const uint EMBED_SCALE = 0u; // float bits: the factor of embeddings; 0 where there is none

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Floats2 { vec2 v[]; };

float rounded(float x) {
    if (DTYPE_X == DTYPE_F32) return x;
    return DTYPE_X == DTYPE_F16 ? f16_value(f16_bits(x)) : bf16_value(bf16_bits(x));
}

// Two neighbouring features of an embedding times the factor, each rounded.
vec2 scaled_pair(vec2 x) {
    vec2 row = vec2(rounded(x.x), rounded(x.y));
    if (EMBED_SCALE == 0u) return row;
    row *= rounded(uintBitsToFloat(EMBED_SCALE));
    return vec2(rounded(row.x), rounded(row.y));
}

// Two neighbouring features of a sequence; column is even.
vec2 values_at(uint sequence, uint column) {
    if (pc.address[X] != 0ul) {
        uint at = sequence * HIDDEN + column;
        return vec2(load_float(pc.address[X], at, DTYPE_X), load_float(pc.address[X], at + 1u, DTYPE_X));
    }
    uint token = min(U32s(pc.address[IDS]).v[sequence], pc.p.vocabulary - 1u), group = token * (HIDDEN / GROUP) + column / GROUP;
    if (BITS == 16u) {
        vec2 x = pair_value(Weights1(pc.address[CODES]).v[(token * HIDDEN + column) / 2u], DTYPE_W);
        return scaled_pair(x);
    }
    const uint each = 32u / BITS;
    uint codes = U32s(pc.address[CODES]).v[token * (HIDDEN / each) + column / each] >> column % each * BITS;
    float scale = rounded(load_float(pc.address[SCALES], group, DTYPE_W)), bias = rounded(load_float(pc.address[BIASES], group, DTYPE_W));
    vec2 x = scale * vec2(uvec2(codes, codes >> BITS) & ((1u << BITS) - 1u)) + bias;
    return scaled_pair(x);
}

void main() {
    uint sequence = gl_WorkGroupID.y, first = gl_WorkGroupID.x * THREADS + thread(), step = gl_NumWorkGroups.x * THREADS;
    int position = I32s(pc.address[INDEX]).v[sequence / TOKENS];
    if (PAGE == 0u) position = max(position, 0); // in pages, negative ones are outside, as those beyond the end are
    uint now = min(uint(position), pc.p.capacity - TOKENS) + sequence % TOKENS;
    if (first == 0u) U32s(in_state(AT_POSITIONS)).v[sequence] = now;
    for (uint i = first; i < ROPES * HEAD_DIM / 2u; i += step) {
        uint rope = i / (HEAD_DIM / 2u), pair = i % (HEAD_DIM / 2u);
        uint64_t freqs = pc.address[FREQS + rope], to = in_state(AT_ROPE_ANGLES + rope * BYTES_ROPE_ANGLES + sequence * HEAD_DIM * 4u);
        Scaled frequency;
        if (freqs != 0ul)
            frequency = scaled_reciprocal(scaled_float(F32s(freqs).v[ROPE_DIMS == 0u ? pair : min(pair, ROTATED_PAIRS - 1u)]));
        else frequency = rope_frequency(pair, 2u * ROTATED_PAIRS, pc.p.log2_bases[rope]);
        Scaled turns = turns_per_position(frequency, pc.p.rope_scales[rope]);
        if (ROPE_DIMS != 0u && pair >= ROTATED_PAIRS) turns.mantissa = 0u; // no turn at any position
        Floats2(to).v[pair] = rope_angle_of(rope, pair, turn_at(int(now), turns));
    }
    uint rows = sequence / 8u, row_lane = sequence % 8u * 4u;
    for (uint i = first; i < HIDDEN / 4u; i += step) { // four neighbours have the 16 columns of a block
        uint block = i / 4u, c = i & 3u;
        vec2 x[2];
        [[unroll]] for (uint pair = 0; pair < 2u; pair++) {
            uint column = block * 16u + 8u * pair + 2u * c;
            x[pair] = values_at(sequence, column);
            U32s(in_state(AT_BEFORE + word_at(HIDDEN, rows, block, row_lane + c, pair))).v[0] =
                tagged(before_norm(x[pair], norm_pair(pc.address[NORM], column / 2u)), FIRST_TAG);
            float square = four_sum(dot(x[pair], x[pair]));
            if (c == 0u)
                U32s(in_state(square_at(AT_BEFORE_SQUARES, sequence, block * 2u + pair))).v[0] = tagged(floatBitsToUint(square), FIRST_TAG);
        }
        F32x4s(in_state(x_at(rows, block, row_lane + c))).v[0] = vec4(x[0], x[1]);
    }
    // Not those of recurrent layers, which come last: barriers order them.
    for (uint i = sequence * step + first; i < (AT_NET - AT_AFTER) / 16u; i += step * SEQUENCES) U32x4s(in_state(AT_AFTER)).v[i] = uvec4(0);
}
