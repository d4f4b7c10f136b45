// Kernels random_bits and random_normal: threefry words in MLX's layout, see random_bits.comp, and normal numbers of them. A chunk is
// some blocks of one key after another.

#include "../../shaders/include/math/normal.h"
#include "../../shaders/include/math/threefry.h"
#include "simd.h"

enum { RUN = 128, BLOCK_COST = 64 };

static uint32_t blocks_of(const struct RandomBitsPush *p) { return (p->words_per_key + 1) / 2; }
static uint32_t block_grain(const struct RandomBitsPush *p) { return chunk_grain(p->keys * blocks_of(p), BLOCK_COST, 1); }

// The blocks first..first+n-1 of a key: word i, and word i + blocks if there is one.
static void words_of(uint32_t *low, uint32_t *high, uint32_t key0, uint32_t key1, uint32_t first, uint32_t n, uint32_t blocks) {
    const uint32_t key2 = threefry_key2(key0, key1);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) { // two vectors at a time: a step waits for the one before it
        u4 a0 = first + i + (u4){0, 1, 2, 3}, a1 = a0 + blocks, b0 = a0 + 4, b1 = a1 + 4;
        THREEFRY(a0, a1, key0, key1, key2)
        THREEFRY(b0, b1, key0, key1, key2)
        *(u4_unaligned *)(low + i) = a0, *(u4_unaligned *)(high + i) = a1;
        *(u4_unaligned *)(low + i + 4) = b0, *(u4_unaligned *)(high + i + 4) = b1;
    }
    for (; i < n; i++) {
        uint64_t block = threefry(key0, key1, first + i, first + i + blocks);
        low[i] = (uint32_t)block;
        high[i] = (uint32_t)(block >> 32);
    }
}

static void store_words(uint32_t *to, const uint32_t *words, uint32_t n) { __builtin_memcpy(to, words, (size_t)n * 4); }

// Few numbers lie near the ends: they are made once more, one at a time.
static void store_normals(uint32_t *restrict to, const uint32_t *words, uint32_t n) {
    float x[RUN];
    uint32_t slow = 0;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = normal_uniform(words[i]);
        slow |= !m_erfinv_is_fast(x[i]);
    }
#pragma clang loop interleave_count(2)
    for (uint32_t i = 0; i < n; i++) to[i] = float_bits(m_erfinv_fast(x[i]) * 1.41421356f);
    for (uint32_t i = 0; i < n && slow; i++)
        if (!m_erfinv_is_fast(x[i])) to[i] = float_bits(normal_number(words[i]));
}

typedef void Store(uint32_t *to, const uint32_t *words, uint32_t n);

static inline __attribute__((always_inline)) void make(const Call *call, uint32_t chunk, uint32_t last, Store *store) {
    PUSH(RandomBitsPush);
    const uint32_t *keys = (const uint32_t *)call->buffer[0];
    uint32_t *out = (uint32_t *)call->buffer[1];
    const uint32_t blocks = blocks_of(p), half = p->words_per_key / 2, grain = block_grain(p);
    const uint32_t end = chunk_end(last, grain, p->keys * blocks);
    for (uint32_t at = chunk * grain; at < end;) {
        const uint32_t key = at / blocks, i = at % blocks;
        uint32_t n = end - at < RUN ? end - at : RUN;
        uint32_t *to = out + (size_t)key * p->words_per_key + i;
        uint32_t low[RUN], high[RUN];
        if (i < half) {
            n = half - i < n ? half - i : n;
            words_of(low, high, keys[2 * key], keys[2 * key + 1], i, n, blocks);
            store(to, low, n);
            store(to + blocks, high, n);
        } else { // the one in the middle
            n = 1;
            low[0] = (uint32_t)threefry(keys[2 * key], keys[2 * key + 1], i, 0);
            store(to, low, n);
        }
        at += n;
    }
}

uint32_t chunks_random_bits(const Call *call) {
    PUSH(RandomBitsPush);
    return chunk_count(p->keys * blocks_of(p), block_grain(p));
}
void k_random_bits(const Call *call, uint32_t chunk, uint32_t last) { make(call, chunk, last, store_words); }

uint32_t chunks_random_normal(const Call *call) { return chunks_random_bits(call); }
void k_random_normal(const Call *call, uint32_t chunk, uint32_t last) { make(call, chunk, last, store_normals); }
