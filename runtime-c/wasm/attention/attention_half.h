// Keys and values in float16 that a few rows of a block read where they lie.
//
// Eight halves become two vectors of floats without a conversion. If the bits of a half h are shifted so that the
// exponents meet, they are the float h * 2^-112. The factor goes into scores and weights. Even and odd elements are
// separated. So rows of q and of the output are in split order while a block is computed. The order is 0 2 4 6 1 3 5 7
// of every eight dims. Infinity and NaN do not survive the shift: the largest magnitude says whether there were any.

#ifndef VKMX_WASM_ATTENTION_HALF_H
#define VKMX_WASM_ATTENTION_HALF_H
#include "simd.h"

#define HALF_FACTOR 0x1p112f

INLINE f4 even_halves(u4 h) { return (f4)((u4)((i4)(h << 16) >> 3) & 0x8fffffffu); }
INLINE f4 odd_halves(u4 h) { return (f4)((u4)((i4)h >> 3) & 0x8fffe000u); }

// Largest magnitudes of halves so far, shifted by the sign.
INLINE u16x8 half_magnitudes(u16x8 most, u4 h) { return __builtin_elementwise_max(most, (u16x8)h << 1); }
INLINE bool any_special(u16x8 most) { return __builtin_reduce_max(most) >= 0xf800u; }

INLINE void to_split_order(float *x, uint32_t dim) {
    for (uint32_t d = 0; d < dim; d += 8) {
        f4 a = f4_load(x + d), b = f4_load(x + d + 4);
        f4_store(x + d, __builtin_shufflevector(a, b, 0, 2, 4, 6));
        f4_store(x + d + 4, __builtin_shufflevector(a, b, 1, 3, 5, 7));
    }
}

INLINE void from_split_order(float *x, uint32_t dim) {
    for (uint32_t d = 0; d < dim; d += 8) {
        f4 even = f4_load(x + d), odd = f4_load(x + d + 4);
        f4_store(x + d, __builtin_shufflevector(even, odd, 0, 4, 1, 5));
        f4_store(x + d + 4, __builtin_shufflevector(even, odd, 2, 6, 3, 7));
    }
}

// A row of halves, times 2^-112, in split order.
INLINE u16x8 load_split(float *to, const uint16_t *from, uint32_t dim, u16x8 most) {
    for (uint32_t d = 0; d < dim; d += 8) {
        u4 h = u4_load(from + d);
        f4_store(to + d, even_halves(h));
        f4_store(to + d + 4, odd_halves(h));
        most = half_magnitudes(most, h);
    }
    return most;
}

// Scores of two rows, `q_stride` floats apart, against `keys` rows of k, a multiple of 4.
INLINE u16x8 score_halves(const float *q, uint32_t q_stride, const uint16_t *k, ptrdiff_t stride, uint32_t dim, uint32_t keys,
                          float *scores, uint32_t score_stride, u16x8 most) {
    for (uint32_t j = 0; j < keys; j += 4, k += 4 * stride) {
        f4 s[2][4] = {{{0}}};
        for (uint32_t d = 0; d < dim; d += 8) {
            f4 even0 = f4_load(q + d), odd0 = f4_load(q + d + 4);
            f4 even1 = f4_load(q + q_stride + d), odd1 = f4_load(q + q_stride + d + 4);
#pragma clang loop unroll(full)
            for (uint32_t n = 0; n < 4; n++) {
                u4 h = u4_load(k + n * stride + d);
                f4 even = even_halves(h), odd = odd_halves(h);
                most = half_magnitudes(most, h);
                s[0][n] = f4_fma(odd0, odd, f4_fma(even0, even, s[0][n]));
                s[1][n] = f4_fma(odd1, odd, f4_fma(even1, even, s[1][n]));
                keep_order(&s[0][n], &s[1][n]);
            }
        }
        f4_store(scores + j, f4_sum4(s[0][0], s[0][1], s[0][2], s[0][3]) * HALF_FACTOR);
        f4_store(scores + score_stride + j, f4_sum4(s[1][0], s[1][1], s[1][2], s[1][3]) * HALF_FACTOR);
    }
    return most;
}

// out += weights . v for two rows, whose weights hold the factor. Four rows of v at a time, whole, so that memory is read
// as it lies.
INLINE u16x8 add_halves(float *out, uint32_t out_stride, const uint16_t *v, ptrdiff_t stride, uint32_t dim, uint32_t keys,
                        const float *weights, uint32_t weight_stride, u16x8 most) {
    for (uint32_t j = 0; j < keys; j += 4, v += 4 * stride) {
        f4 w0[4], w1[4];
        for (uint32_t n = 0; n < 4; n++) { w0[n] = f4_splat(weights[j + n]), w1[n] = f4_splat(weights[weight_stride + j + n]); }
        for (uint32_t d = 0; d < dim; d += 8) {
            float *to = out + d;
            f4 even0 = f4_load(to), odd0 = f4_load(to + 4);
            f4 even1 = f4_load(to + out_stride), odd1 = f4_load(to + out_stride + 4);
#pragma clang loop unroll(full)
            for (uint32_t n = 0; n < 4; n++) {
                u4 h = u4_load(v + n * stride + d);
                f4 even = even_halves(h), odd = odd_halves(h);
                most = half_magnitudes(most, h);
                even0 = f4_fma(w0[n], even, even0), even1 = f4_fma(w1[n], even, even1);
                odd0 = f4_fma(w0[n], odd, odd0), odd1 = f4_fma(w1[n], odd, odd1);
                keep_order(&even0, &even1);
                keep_order(&odd0, &odd1);
            }
            f4_store(to, even0), f4_store(to + 4, odd0);
            f4_store(to + out_stride, even1), f4_store(to + out_stride + 4, odd1);
        }
    }
    return most;
}

#endif
