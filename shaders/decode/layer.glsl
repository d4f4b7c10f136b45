// The common part of a layer's phases beyond decode.glsl and features.glsl: new keys, scores, and the zeros after a
// layer.

#include "features.glsl"
#include "include/kv_address.glsl"
#ifndef KINDS_ID // kernels that read no heads
const uint ROPE_DIMS = 0u;
#include "include/rope_place.glsl"
#endif

// The residual that this workgroup carries over, if accumulators have it.
void take_carry(uint64_t from, inout Carry c) {
    if (POST_NORM == 0u) load_carry(from, c);
    else [[unroll]]
        for (uint i = 0; i < 4u * QUAD_ROUNDS; i++) c.s[i] = ZERO_ACCUMULATOR;
}

// Brings feature i of the new key's first features of a slice, or of their partners, to the cache.
void store_key(uint64_t keys, uint partner, uint now, uint i, float key) {
    if (!kv_has_room(now)) return;
    uint block = rope_quad(partner * ROPE_HALF + slice());
    store_float(key_address(keys, kv_place(SEQUENCE, now), kv_head(), block), i, DTYPE_KV, key);
}

// All four of them, in codes.
void store_key_codes(uint64_t keys, uint partner, uint now, uint word) {
    if (!kv_has_room(now)) return;
    U32s(key_address(keys, kv_place(SEQUENCE, now), kv_head(), rope_quad(partner * ROPE_HALF + slice()))).v[0] = word;
}

// ---- scores: two heads to 8 bytes, fixed point ----------------------------------------------------------------------------

// If q is still to be divided by its rms, which may be small, steps are finer. If scores are only scaled, they are
// about 2^-13 of what the exponential gets, and there is room for larger features. A score has 32 bits, or 29 beside a
// count of 6. It holds the sum of as many parts as there are slices, of at most SCORE_LIMIT each. Larger parts are
// clamped, which makes a difference only if those of several positions are as large. In 29 bits clamping sets the
// status (see score_add).
#define BY_HEAD_NORM(normalised, raw) (HEAD_NORM != 0u ? normalised : raw)
#define SCORE_STEPS BY_HEAD_NORM(4096.0, 1024.0)
#define SCORE_STEP BY_HEAD_NORM(1.0 / 4096.0, 1.0 / 1024.0)
#if ACCUMULATORS == 2
#define SCORE_LIMIT (BY_HEAD_NORM(65000.0, 260000.0) / float(SLICES))
#else
#define SCORE_LIMIT (BY_HEAD_NORM(520000.0, 2080000.0) / float(SLICES))
#endif

uint64_t scores_of(uint layer, uint kv_head, uint pair) {
    return state() + (layer_at(layer) + AT_SCORES + (kv_head * PAIRS + pair) * pc.p.capacity * 8u);
}

void score_add(uint64_t scores, uint at, vec2 s) {
    note_lost(s.x);
    note_lost(s.y);
    vec2 steps = clamp(s, -SCORE_LIMIT, SCORE_LIMIT) * SCORE_STEPS;
    ivec2 k = ivec2(steps + mix(vec2(0.5), vec2(-0.5), lessThan(steps, vec2(0))));
#if ACCUMULATORS == 0
    atomicAdd(U64s(scores).v[at], uint64_t((int64_t(k.y) << 32) + int64_t(k.x)));
#elif ACCUMULATORS == 2
    atomicAdd(U64s(scores).v[at], uint64_t((int64_t(k.y) << 35) + (int64_t(k.x) << 6) + 1l));
#ifdef POLL
    // Larger scores need the 32 bits of ACCUMULATORS 0.
    if (any(greaterThan(abs(s), vec2(SCORE_LIMIT)))) Shared1(pc.address[STATUS]).v[0] = 2u;
#endif
#else
    atomicAdd(U32s(scores).v[2u * at], uint(k.x));
    atomicAdd(U32s(scores).v[2u * at + 1u], uint(k.y));
#endif
}

vec2 score_value(uvec2 w) {
#if ACCUMULATORS == 0
    return vec2(int(w.x), int(w.y) + int(w.x >> 31)) * SCORE_STEP;
#elif ACCUMULATORS == 2
    int x = int((w.y << 29) | ((w.x >> 6) << 3)) >> 3;
    return vec2(x, (int(w.y) >> 3) + int(uint(x) >> 31)) * SCORE_STEP;
#else
    return vec2(int(w.x), int(w.y)) * SCORE_STEP;
#endif
}

#ifdef POLL
bool score_complete(uvec2 w) { return (w.x & 63u) == SLICES; }
#endif

// Zeroes this workgroup's share of what no workgroup reads any more once the third phase of a layer is past its own
// polls.
void clear_layer(uint layer, uint now) {
#if ACCUMULATORS == 2
    if (layer > 0u) {
        residual_clear(state_before(layer - 1u));
        residual_clear(state_after(layer - 1u));
    }
#else
    residual_clear(state_before(layer));
#endif
    if (HEAD_NORM != 0u && slice() == 0u && thread() <= HEADS)
        accumulator_store(state_squares(layer), kv_head() * (HEADS + 1u) + thread(), ZERO_ACCUMULATOR);
    [[dont_unroll]] for (uint pair = 0; pair < PAIRS; pair++) [[dont_unroll]]
        for (uint p = slice() * THREADS + thread(); p <= now; p += SLICES * THREADS)
            Shared2(scores_of(layer, kv_head(), pair)).v[p] = uvec2(0);
}
