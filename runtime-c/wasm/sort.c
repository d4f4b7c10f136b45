// Kernels sort_init, sort_pass and sort_finish: the same bitonic passes as the shaders, in the same dispatches
// (push.h).

#include "../../shaders/include/combine.h"
#include "simd.h"

void k_sort_init(const Call *call) {
    PUSH(SortPush);
    uint32_t dtype = call->spec[1];
    for (size_t row = 0; row < p->rows; row++) {
        uint32_t *keys = (uint32_t *)call->buffer[1] + row * p->padded;
        uint32_t *indices = (uint32_t *)call->buffer[2] + row * p->padded;
        for (uint32_t i = 0; i < p->padded; i++) {
            keys[i] = 0xffffffffu;
            if (i < p->cols) keys[i] = ordered_key(load_bits(call->buffer[0], row * p->cols + i, dtype), dtype);
            indices[i] = i;
        }
    }
}

// Puts the pairs at a and a + j into ascending or descending order, for n neighbours; branch-free, so that it runs in
// SIMD.
static void exchange(uint32_t *keys, uint32_t *indices, size_t n, size_t j, bool ascending) {
    uint32_t up = ascending ? 0xffffffffu : 0u;
    for (size_t a = 0; a < n; a++) {
        uint32_t key_a = keys[a], key_b = keys[a + j], index_a = indices[a], index_b = indices[a + j];
        uint32_t wrong = key_a > key_b || (key_a == key_b && index_a > index_b) ? 0xffffffffu : 0u;
        uint32_t swap = ~(wrong ^ up), key = (key_a ^ key_b) & swap, index = (index_a ^ index_b) & swap;
        keys[a] = key_a ^ key;
        keys[a + j] = key_b ^ key;
        indices[a] = index_a ^ index;
        indices[a + j] = index_b ^ index;
    }
}

// One pass over `count` pairs, of which the first is number `start` of its row.
static void pass(uint32_t *keys, uint32_t *indices, size_t start, size_t count, size_t k, size_t j) {
    for (size_t a = 0; a < count; a += 2 * j) exchange(keys + a, indices + a, j, j, ((start + a) & k) == 0);
}

void k_sort_pass(const Call *call) {
    PUSH(SortPush);
    size_t span = min_u32(2 * call->spec[0], p->padded);
    for (size_t row = 0; row < p->rows; row++) {
        uint32_t *keys = (uint32_t *)call->buffer[0] + row * p->padded;
        uint32_t *indices = (uint32_t *)call->buffer[1] + row * p->padded;
        if (p->pass_j >= span) {
            pass(keys, indices, 0, p->padded, p->pass_k, p->pass_j);
            continue;
        }
        for (size_t base = 0; base < p->padded; base += span) {
            for (size_t k = p->pass_k == span ? 2 : p->pass_k; k <= p->pass_k; k *= 2) {
                for (size_t j = min_u32((uint32_t)k, (uint32_t)span) / 2; j > 0; j /= 2) {
                    pass(keys + base, indices + base, base, span, k, j);
                }
            }
        }
    }
}

// Elements move as their bits.
#define GATHER(type) \
    for (uint32_t i = 0; i < p->cols; i++) ((type *)out)[i] = ((const type *)from)[indices[i]]

void k_sort_finish(const Call *call) {
    PUSH(SortPush);
    const uint8_t *in = call->buffer[0];
    uint32_t bytes = in ? DTYPE_BYTES(call->spec[1]) : 4;
    for (size_t row = 0; row < p->rows; row++) {
        const uint32_t *indices = (const uint32_t *)call->buffer[1] + row * p->padded;
        uint8_t *out = call->buffer[2] + row * p->cols * bytes;
        const uint8_t *from = in ? in + row * p->cols * bytes : NULL;
        if (!in) __builtin_memcpy(out, indices, (size_t)p->cols * 4);
        else if (bytes == 4) GATHER(uint32_t);
        else if (bytes == 2) GATHER(uint16_t);
        else GATHER(uint8_t);
    }
}
