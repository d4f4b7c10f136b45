#version 460
// Opens a token: the state's residual becomes the embedding of the token, or a given vector, and the rest is what open.glsl
// names.
//
// Any grid along x, a sequence each along y; thread t handles every so many quads of features and words of the accumulators.

#define BUFFERS 9
#define PUSH DecodeBeginPush
#define ANY_ACCUMULATORS
#include "decode.glsl"

layout(constant_id = 14) const uint DTYPE_X = DTYPE_F32; // the dtype to which the embedding is rounded, or the vector's
layout(constant_id = 15) const uint PAGE = 0;            // positions of a page of the cache; 0 where it has none

const uint STATE = 0u, POSITION = 1u, X = 2u, IDS = 3u, CODES = 4u, SCALES = 5u, BIASES = 6u, FREQS = 7u; // and that of the other rope

#define EMBED_ID 19
#include "embed.glsl"
#define OPEN_ID 16
#include "open.glsl"

// The fraction of a full turn that each position adds, of all ropes, which every later token needs too.
void open_frequencies() {
    for (uint i = thread(); i < ROPES * HEAD_DIM / 2u; i += THREADS) {
        uint rope = i / (HEAD_DIM / 2u), pair = i % (HEAD_DIM / 2u);
        uint64_t freqs = pc.address[FREQS + rope];
        Scaled frequency;
        if (freqs != 0ul)
            frequency = scaled_reciprocal(scaled_float(F32s(freqs).v[ROPE_DIMS == 0u ? pair : min(pair, ROTATED_PAIRS - 1u)]));
        else frequency = rope_frequency(pair, 2u * ROTATED_PAIRS, pc.p.log2_bases[rope]);
        Scaled turns = turns_per_position(frequency, pc.p.rope_scales[rope]);
        if (ROPE_DIMS != 0u && pair >= ROTATED_PAIRS) turns.mantissa = 0u; // no turn at any position
        U32x2s(state_frequencies()).v[i] = uvec2(turns.mantissa, uint(turns.exponent << 1) | turns.negative);
    }
}

void main() {
    uint first = gl_WorkGroupID.x * THREADS + thread(), step = gl_NumWorkGroups.x * THREADS;
    int position_ = I32s(pc.address[POSITION]).v[SEQUENCE];
    if (PAGE == 0u) position_ = max(position_, 0); // in pages, negative ones are outside, as those beyond the end are
    uint now = min(uint(position_), pc.p.capacity - 1u);
    if (first == 0u) {
        U32s(state_position()).v[0] = now;
        U32s(state_lost()).v[0] = 0u;
    }
    for (uint quad = first; quad < QUADS; quad += step)
        open_residual(quad, pc.address[X] != 0ul ? load_quad(pc.address[X], SEQUENCE * QUADS + quad, DTYPE_X)
                                                 : embedding(U32s(pc.address[IDS]).v[SEQUENCE], quad));
    clear_accumulators(0u, now, first, step);
    if (gl_WorkGroupID.x + 1u == gl_NumWorkGroups.x) { // which has the least to do otherwise
        open_frequencies();                            // by the threads that read them
        open_rope_angles(now);
    }
}
