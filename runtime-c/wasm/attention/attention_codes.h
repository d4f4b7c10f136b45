// Keys and values in codes that a few rows of a block read where they lie.
//
// Four words become four vectors: feature i of each. So rows of q and of the output are in code order while a block is computed. Of every
// sixteen dims it has the first ones of four words, then the second, the third and the fourth ones. What a word's features share multiplies
// sums of them, or the weights.

#ifndef VKMX_WASM_ATTENTION_CODES_H
#define VKMX_WASM_ATTENTION_CODES_H
#include "attention/kv_codes.h"

enum { CODE_DIMS = 16 };

INLINE f4 code_steps(u4 words) { return (f4)(((words >> 28) + 117) << 23); }
// Feature i of each word, in steps.
INLINE f4 code_features(u4 words, uint32_t i) { return __builtin_convertvector((i4)(words << (25 - 7 * i)) >> 25, f4); }

// From the order of dims to that of codes, or back.
INLINE void swap_code_order(float *x, uint32_t dim) {
    for (uint32_t d = 0; d < dim; d += CODE_DIMS) {
        f4 a = f4_load(x + d), b = f4_load(x + d + 4), c = f4_load(x + d + 8), e = f4_load(x + d + 12);
        f4_transpose(&a, &b, &c, &e);
        f4_store(x + d, a), f4_store(x + d + 4, b), f4_store(x + d + 8, c), f4_store(x + d + 12, e);
    }
}

// A row of codes, in code order.
INLINE void load_codes(float *to, const uint8_t *from, uint32_t dim) {
    for (uint32_t d = 0; d < dim; d += CODE_DIMS) {
        u4 words = u4_load(from + d);
        f4 steps = code_steps(words);
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < 4; i++) f4_store(to + d + 4 * i, code_features(words, i) * steps);
    }
}

// Scores of two rows, `q_stride` floats apart, against `keys` rows of k, `stride` bytes apart, a multiple of 4.
INLINE void score_codes(const float *q, uint32_t q_stride, const uint8_t *k, ptrdiff_t stride, uint32_t dim, uint32_t keys, float *scores,
                        uint32_t score_stride) {
    for (uint32_t j = 0; j < keys; j += 4, k += 4 * stride) {
        f4 s[2][4] = {{{0}}};
        for (uint32_t d = 0; d < dim; d += CODE_DIMS) {
#pragma clang loop unroll(full)
            for (uint32_t n = 0; n < 4; n++) {
                u4 words = u4_load(k + n * stride + d);
                f4 steps = code_steps(words), sums[2] = {{0}};
#pragma clang loop unroll(full)
                for (uint32_t i = 0; i < 4; i++) {
                    f4 x = code_features(words, i);
                    sums[0] = f4_fma(f4_load(q + d + 4 * i), x, sums[0]);
                    sums[1] = f4_fma(f4_load(q + q_stride + d + 4 * i), x, sums[1]);
                }
                s[0][n] = f4_fma(sums[0], steps, s[0][n]);
                s[1][n] = f4_fma(sums[1], steps, s[1][n]);
                keep_order(&s[0][n], &s[1][n]);
            }
        }
        f4_store(scores + j, f4_sum4(s[0][0], s[0][1], s[0][2], s[0][3]));
        f4_store(scores + score_stride + j, f4_sum4(s[1][0], s[1][1], s[1][2], s[1][3]));
    }
}

// Two rows of out += weights . v. Four rows of v at a time, whole, so that memory is read as it lies.
INLINE void add_codes(float *out, uint32_t out_stride, const uint8_t *v, ptrdiff_t stride, uint32_t dim, uint32_t keys,
                      const float *weights, uint32_t weight_stride) {
    for (uint32_t j = 0; j < keys; j += 4, v += 4 * stride) {
        for (uint32_t d = 0; d < dim; d += CODE_DIMS) {
            f4 o[2][4];
#pragma clang loop unroll(full)
            for (uint32_t i = 0; i < 4; i++) { o[0][i] = f4_load(out + d + 4 * i), o[1][i] = f4_load(out + out_stride + d + 4 * i); }
#pragma clang loop unroll(full)
            for (uint32_t n = 0; n < 4; n++) {
                u4 words = u4_load(v + n * stride + d);
                f4 steps = code_steps(words), w0 = steps * weights[j + n], w1 = steps * weights[weight_stride + j + n];
#pragma clang loop unroll(full)
                for (uint32_t i = 0; i < 4; i++) {
                    f4 x = code_features(words, i);
                    o[0][i] = f4_fma(w0, x, o[0][i]);
                    o[1][i] = f4_fma(w1, x, o[1][i]);
                    keep_order(&o[0][i], &o[1][i]);
                }
            }
#pragma clang loop unroll(full)
            for (uint32_t i = 0; i < 4; i++) { f4_store(out + d + 4 * i, o[0][i]), f4_store(out + out_stride + d + 4 * i, o[1][i]); }
        }
    }
}

#endif
