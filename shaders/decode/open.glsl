// The start of a token, except for the residual before the first layer: the rope angles of its position, and zeros where
// layers add. It does not depend on what the token is, so either begin.comp does it or the head of the token before. If
// the head does, begin.comp runs only before the first of several tokens.

#include "include/math/angle.h"
#include "include/rope_constants.glsl"

#if ACCUMULATORS != 3
// Zeroes the residual before a layer.
void clear_before(uint layer, uint first, uint step) {
    for (uint i = first; i < HIDDEN * COPIES; i += step) accumulator_store(state_before(layer), place(i), ZERO_ACCUMULATOR);
}

// Zeroes all that layers add to but the residual before the first one, and the one before layer `kept`, which is still
// read. Accumulators of other layers than the last one are zero: each layer clears those of the one before, and at
// first all memory is zero.
void clear_accumulators(uint kept, uint now, uint first, uint step) {
    uint last = LAYER - 1u;
    [[unroll]] for (uint n = 1; n < RESIDUAL_RING; n++)
        if (n != kept % RESIDUAL_RING) clear_before(n, first, step);
    [[unroll]] for (uint n = 0; n < LAYER_RING; n++)
        for (uint i = first; i < HIDDEN * COPIES; i += step) accumulator_store(state_after(n), place(i), ZERO_ACCUMULATOR);
    for (uint i = first; i < SQUARES; i += step) accumulator_store(state_squares(last), i, ZERO_ACCUMULATOR);
    for (uint row = 0; row < KV_HEADS * PAIRS; row++)
        for (uint i = first; i <= now; i += step) U32x2s(state_scores(last)).v[row * pc.p.capacity + i] = uvec2(0);
}

// Zeroes the residual that the head has read, unless it is the place of the embedding.
void clear_read(uint first, uint step) {
    if (LAYER % RESIDUAL_RING != 0u) clear_before(LAYER, first, step);
}
#endif

// Cosine and sine of each pair of features of all ropes, from the part of a full turn that a position adds. Rotated pairs
// have the factor of their rope in them.
void open_rope_angles(uint position) {
    for (uint pair = thread(); pair < ROPES * HEAD_DIM / 2u; pair += THREADS) {
        uvec2 f = U32x2s(state_frequencies()).v[pair];
        uint turn = turn_at(int(position), scaled(f.x, int(f.y) >> 1, f.y & 1u));
        F32x2s(state_rope_angles(0u)).v[pair] = rope_angle_of(pair / ROPE_PAIRS, pair % ROPE_PAIRS, turn);
    }
}
