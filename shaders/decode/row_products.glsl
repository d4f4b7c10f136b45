// Rows of a product with the normalised residual, for the kernels that begin with a norm. x / rms(x) * w lies in shared
// memory in 16 bits, in chunks of 32 features that share a scale. chunk_dot() is the dot product of one chunk with 32
// weights. For dense weights 32 eights of features lie in chunk_high, the next 32 in chunk_low, and so on.

const uint HALF = CHUNKS + 4u; // padding against bank conflicts
const uint EIGHTS =
    2u * HALF + (CODE_BITS(HEAD_FORMAT) == 16u ? 16u : 0u); // the last 64 may be there in part, which are all in chunk_high then
shared uvec4 chunk_high[EIGHTS];                            // words 0 to 3 of all chunks of 32 features, then words 4 to 7
shared uvec4 chunk_low[EIGHTS];
shared vec2 chunk_scale[CHUNKS]; // scale of the block, sum of its values
shared float warp_squares[WARPS];

uint bytes_of(uvec4 b) { return (b.x & 255u) | ((b.y & 255u) << 8) | ((b.z & 255u) << 16) | (b.w << 24); }

#include "dense_dot.glsl"
#include "include/norms.glsl"

// 4 bytes in the order of code_bytes(). For 4 bits they are of this quad and its neighbour's: even lanes get the even
// features and odd lanes the odd ones.
uint interleave(uint own, const uint format) {
    if (CODE_BITS(format) == 8u) return own;
    uint other = lane_xor(own, 1u);
    bool odd = (lane() & 1u) != 0u;
    uint first = odd ? other : own, second = odd ? own : other;
    uint shift = odd ? 8u : 0u;
    first >>= shift;
    second >>= shift;
    return (first & 255u) | ((first >> 8) & 0xff00u) | ((second & 255u) << 16) | ((second << 8) & 0xff000000u);
}

struct Rows {
    vec4 x[QUAD_ROUNDS], w[QUAD_ROUNDS];
};

void load_norm(uint64_t weight, inout Rows r) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        r.w[n] = NORM_WEIGHT(load_quad(weight, min(thread() + n * THREADS, QUADS - 1u), DTYPE_W));
}
void load_residual(uint64_t residual, inout Rows r) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        r.x[n] = quad < QUADS ? residual_quad(residual, quad) : vec4(0);
        [[unroll]] for (uint i = 0; i < 4u; i++)
            note_lost(r.x[n][i]);
    }
    IF_POLLING(subgroupBarrier()); // lanes that waited, each for its own, meet again
}

#if defined(NORMS_ID) && ACCUMULATORS != 3
// ---- norms of what parts add to the residual --------------------------------------------------------------------------------
//
// With POST_NORM the accumulators have what a part gives, and each workgroup adds its norm to the residual by itself. It keeps
// the residual in registers from phase to phase, and in the state from dispatch to dispatch.

vec4 carried[QUAD_ROUNDS];

// Whether a phase is the first of its dispatch that needs the residual: `before` has the bits of those of the layer that come
// first. Whether it is the last one: `next` is the bit of the phase that needs it next, 8 of the next layer.
#ifdef POLL
#define IS_FIRST(before) (LAYER == pc.p.layer && (pc.p.phases & (before)) == 0u)
#define IS_LAST(next) ((next) == 8u ? LAYER + 1u == pc.p.layer + pc.p.layers || (pc.p.phases & 1u) == 0u : (pc.p.phases & (next)) == 0u)
#else
#define IS_FIRST(before) true
#define IS_LAST(next) true
#endif

shared float part_squares[POST_NORM == 0u ? 1u : WARPS];

// Where the residual is: before a layer's attention (0), before its feed-forward part (1).
uint64_t state_carried(uint which) { return state() + (AT_CARRIED + which * BYTES_CARRIED); }

void load_carried(uint which) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        carried[n] = uintBitsToFloat(Shared4(state_carried(which)).v[min(thread() + n * THREADS, QUADS - 1u)]);
}

// (Arrays sized by constants cannot be assigned whole.)
void keep_residual(Rows r) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        carried[n] = r.x[n];
}

// This workgroup's share.
void store_carried(uint which) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        if (quad < QUADS && quad % WORKGROUPS == gl_WorkGroupID.x) Shared4(state_carried(which)).v[quad] = floatBitsToUint(carried[n]);
    }
}

struct PartNorm {
    vec4 w[QUAD_ROUNDS];
};

void load_part_norm(uint64_t weight, inout PartNorm p) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        p.w[n] = NORM_WEIGHT(load_quad(weight, min(thread() + n * THREADS, QUADS - 1u), DTYPE_W));
}

// Makes the residual of what a part gave: carried + x / rms(x) * w.
void add_part(PartNorm p, inout Rows r) {
    float squares = 0.0;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        squares = dot_on(r.x[n], r.x[n], squares);
    [[unroll]] for (uint m = 1u; m < 32u; m <<= 1)
        squares += lane_xor(squares, m);
    if (lane() == 0u) part_squares[warp() % part_squares.length()] = squares;
    barrier();
    squares = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        squares += part_squares[i % part_squares.length()];
    float scale = inversesqrt(fma(squares, 1.0 / float(HIDDEN), pc.p.eps));
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        r.x[n] = fma(r.x[n] * scale, p.w[n], carried[n]);
        if (CLIPS != 0u) r.x[n] = clamp(r.x[n], vec4(-65504), vec4(65504));
        if (thread() + n * THREADS >= QUADS) r.x[n] = vec4(0);
    }
}
#endif

// Brings x * w to shared memory in 16 bits, in the order of a format; the factor 1 / rms(x) is left to norm_scale().
void norm_to_shared(Rows r, const uint format) {
    float squares = 0.0;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        squares = dot_on(r.x[n], r.x[n], squares);
        vec4 v = r.x[n] * r.w[n];
        float s = dot_on(r.x[n], r.w[n], 0.0);
        vec4 a = abs(v);
        float most = max(1e-20, max(max(a.x, a.y), max(a.z, a.w)));
        [[unroll]] for (uint m = 1u; m < 8u; m <<= 1) {
            most = max(most, lane_xor(most, m));
            s += lane_xor(s, m);
            if (n + 1u == QUAD_ROUNDS) squares += lane_xor(squares, m);
        }
        uvec4 k = floatBitsToUint(fma(v, vec4(STEPS_16BIT / most), vec4(WHOLE)));
        uint chunk = quad >> 3, word = quad & 7u;
        if (CODE_BITS(format) == 16u) {
            uint eight = quad >> 1, at = eight / 64u * 32u + eight % 32u, half_ = 2u * (quad & 1u);
            uint first = pair_of(k.x, k.y), second = pair_of(k.z, k.w);
            if (quad < QUADS && eight % 64u < 32u) {
                chunk_high[at][half_] = first;
                chunk_high[at][half_ + 1u] = second;
            } else if (quad < QUADS) {
                chunk_low[at][half_] = first;
                chunk_low[at][half_ + 1u] = second;
            }
        } else {
            uint low = interleave(bytes_of(k), format);
            uint high = interleave(bytes_of((k + 128u) >> 8), format);
            uint at = (word >> 2) * HALF + chunk;
            if (quad < QUADS) {
                chunk_high[at][word & 3u] = high;
                chunk_low[at][word & 3u] = low;
            }
        }
        if (quad < QUADS) {
            if (word == 0u) chunk_scale[chunk] = vec2(most * (1.0 / STEPS_16BIT), s);
        }
    }
    [[unroll]] for (uint m = 8u; m < 32u; m <<= 1)
        squares += lane_xor(squares, m);
    if (lane() == 0u) warp_squares[warp()] = squares;
    barrier();
}

float norm_scale() {
    float squares = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        squares += warp_squares[i];
    return inversesqrt(fma(squares, 1.0 / float(HIDDEN), pc.p.eps));
}

struct Chunk {
    uvec4 high[2], low[2];
    float scale, sum;
};

Chunk chunk_get(uint chunk) {
    Chunk c;
    c.high[0] = chunk_high[chunk];
    c.high[1] = chunk_high[HALF + chunk];
    c.low[0] = chunk_low[chunk];
    c.low[1] = chunk_low[HALF + chunk];
    vec2 s = chunk_scale[chunk];
    c.scale = s.x;
    c.sum = s.y;
    return c;
}

#include "chunk_dot.glsl"

// Eights 0, 32, 64 and 96 from the lane's on, in 1024 features of round `round_`. The part after the last feature is
// anything finite.
Eights eights_get(uint round_) {
    Eights e;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        uint at = min(round_ * 64u + i / 2u * 32u + lane(), EIGHTS - 1u);
        e.x[i] = i % 2u == 0u ? chunk_high[at] : chunk_low[at];
        e.scales[i] = chunk_scale[min(round_ * 32u + i * 8u + lane() / 4u, CHUNKS - 1u)].x;
    }
    return e;
}
