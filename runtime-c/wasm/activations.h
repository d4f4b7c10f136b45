// Rows of x as int8 with one step a group: x = step * q, and step * sum(q), which the bias of the group is multiplied with.
//
// The sum is that of the rounded values, not of x. scale * code + bias is centred but a code is not, so a rounding
// error counts with the weight's own size. Two bytes a value: x = step * (256 hi + lo).
//
// A single row: q [k], hi and lo in turns of 32 if there are both; steps and sums [group].
// More rows lie in blocks of four: q [k / 4][row][4], all of hi before all of lo; steps and sums [group][row]. The last
// block is padded.
// As words (packed_words.h): blocks of up to four rows without padding, q int16 [k / 8][pair][row][2].

#ifndef VKMX_WASM_ACTIVATIONS_H
#define VKMX_WASM_ACTIVATIONS_H
#include "quantized/packed.h"

typedef struct Activations {
    int8_t *q;
    float *steps, *sums;
} Activations;

INLINE float f4_greatest(f4 v) {
    float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

// Step of a group of values whose largest magnitude is `most`.
INLINE float step_of(float most, float levels) { return most > 1e-30f && most < 3e38f ? most / levels : 1; }

// A constant that stays in a register: engines load one that they can see anew for every use.
INLINE u4 held(uint32_t x) {
    u4 v = {x, x, x, x};
#ifdef __wasm__
    __asm__("" : "+r"(v));
#endif
    return v;
}

enum { ROUNDING = 0x4b400000 };

// x rounded to integers: adding `magic` = 1.5 * 2^23 leaves the integer in the low bits.
INLINE i4 round_to_ints(f4 x, u4 magic) { return (i4)(x + (f4)magic) - (i4)magic; }

INLINE u4 narrow4(i4 a, i4 b, i4 c, i4 d) {
#ifdef __wasm_simd128__
    i16x8 ab = __builtin_wasm_narrow_s_i16x8_i32x4(a, b), cd = __builtin_wasm_narrow_s_i16x8_i32x4(c, d);
    return (u4)__builtin_wasm_narrow_s_i8x16_i16x8(ab, cd);
#else
    i8x16 r;
    for (int i = 0; i < 4; i++) r[i] = (int8_t)a[i], r[4 + i] = (int8_t)b[i], r[8 + i] = (int8_t)c[i], r[12 + i] = (int8_t)d[i];
    return (u4)r;
#endif
}

// Step of a group of values. *poison is 0, or NaN if a value is infinite or NaN: those have no integers, and reach the
// product through the sum.
INLINE float group_step(const float *x, uint32_t group, bool precise, float *poison) {
    u4 magnitude = held(0x7fffffffu);
    f4 zero = (f4)held(0), most[2] = {{0}}, zeros[2] = {{0}};
    for (uint32_t i = 0; i < group; i += 8) {
        for (uint32_t j = 0; j < 2; j++) {
            f4 v = f4_load(x + i + 4 * j);
            most[j] = f4_max((f4)((u4)v & magnitude), most[j]);
            zeros[j] += v * zero;
        }
    }
    *poison = f4_sum(zeros[0] + zeros[1]);
    return step_of(f4_greatest(f4_max(most[0], most[1])), precise ? 32512.0f : 127.0f);
}

// Sixteen values over `step` as integers, which are added to `sum`.
INLINE void round16(const float *x, f4 inverse, u4 magic, i4 v[4], i4 *sum) {
    for (uint32_t j = 0; j < 4; j++) {
        v[j] = round_to_ints(f4_load(x + 4 * j) * inverse, magic);
        *sum += v[j];
    }
}

// The same as bytes: hi in the first vector, lo in the second; or the first alone.
INLINE void quantize16(const float *x, f4 inverse, u4 magic, i4 half, bool precise, u4 bytes[2], i4 *sum) {
    i4 v[4], hi[4];
    round16(x, inverse, magic, v, sum);
    for (uint32_t j = 0; j < 4; j++) {
        hi[j] = precise ? (v[j] + half) >> 8 : v[j];
        v[j] -= hi[j] << 8;
    }
    bytes[0] = narrow4(hi[0], hi[1], hi[2], hi[3]);
    if (precise) bytes[1] = narrow4(v[0], v[1], v[2], v[3]);
}

// A single row.
INLINE void quantize_row(const Activations *to, const float *x, uint32_t k, uint32_t group, bool precise) {
    int8_t *q = to->q;
    u4 magic = held(ROUNDING);
    i4 half = (i4)held(128);
    for (uint32_t g = 0; g < k / group; g++, x += group) {
        float poison, step = group_step(x, group, precise, &poison);
        f4 inverse = f4_splat(1 / step);
        i4 sum = {0};
        for (uint32_t i = 0; i < group; i += 16) {
            u4 bytes[2];
            quantize16(x + i, inverse, magic, half, precise, bytes, &sum);
            int8_t *at = precise ? q + i / SPAN * 2 * SPAN + i % SPAN : q + i;
            *(u4_unaligned *)at = bytes[0];
            if (precise) *(u4_unaligned *)(at + SPAN) = bytes[1];
        }
        q += precise ? 2 * group : group;
        to->steps[g] = step;
        to->sums[g] = step * (float)(sum[0] + sum[1] + sum[2] + sum[3]) + poison;
    }
}

// Row r of a block of four.
INLINE void quantize_block_row(const Activations *to, uint32_t r, const float *x, uint32_t k, uint32_t group, bool precise) {
    int32_t *q = (int32_t *)to->q + r;
    u4 magic = held(ROUNDING);
    i4 half = (i4)held(128);
    for (uint32_t g = 0; g < k / group; g++, x += group) {
        float poison, step = group_step(x, group, precise, &poison);
        f4 inverse = f4_splat(1 / step);
        i4 sum = {0};
        for (uint32_t i = 0; i < group; i += 16, q += 16) {
            u4 bytes[2];
            quantize16(x + i, inverse, magic, half, precise, bytes, &sum);
            for (uint32_t j = 0; j < 4; j++) q[4 * j] = (int32_t)bytes[0][j];
            if (precise)
                for (uint32_t j = 0; j < 4; j++) q[k + 4 * j] = (int32_t)bytes[1][j];
        }
        to->steps[4 * g + r] = step;
        to->sums[4 * g + r] = step * (float)(sum[0] + sum[1] + sum[2] + sum[3]) + poison;
    }
}

// Row r of a block of `rows` as words.
INLINE void quantize_words_row(const Activations *to, uint32_t r, uint32_t rows, const float *x, uint32_t k, uint32_t group) {
    uint32_t *q = (uint32_t *)to->q + r;
    u4 magic = held(ROUNDING);
    for (uint32_t g = 0; g < k / group; g++, x += group) {
        float poison, step = group_step(x, group, true, &poison);
        f4 inverse = f4_splat(1 / step);
        i4 sum = {0};
        for (uint32_t i = 0; i < group; i += 16) {
            i4 v[4];
            round16(x + i, inverse, magic, v, &sum);
            for (uint32_t j = 0; j < 4; j += 2, q += 4 * rows) {
                // The low halves of columns 0, 2, 4, 6, 1, 3, 5 and 7.
                u4 pairs = (u4)__builtin_shufflevector((i16x8)v[j], (i16x8)v[j + 1], 0, 4, 8, 12, 2, 6, 10, 14);
                for (uint32_t p = 0; p < 4; p++) q[p * rows] = pairs[p];
            }
        }
        to->steps[rows * g + r] = step;
        to->sums[rows * g + r] = step * (float)(sum[0] + sum[1] + sum[2] + sum[3]) + poison;
    }
}

#endif
