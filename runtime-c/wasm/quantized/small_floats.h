// Runs of small floats (shaders/include/math/small_float.h) as floats, four at a time.

#ifndef VKMX_WASM_SMALL_FLOATS_H
#define VKMX_WASM_SMALL_FLOATS_H
#include "simd.h"

#include "../../../shaders/include/math/small_float.h"

// Twice the numbers of e2m1 codes. -0 is 0.
static const int8_t E2M1_DOUBLED[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The numbers of two to four e2m1 codes' bytes b, those `at`.. of sixteen, doubled.
#define E2M1_FOUR(b, at) \
    __builtin_convertvector( \
        (i4)__builtin_shufflevector((u8x16){0}, b, 0, 0, 0, 16 + (at), 0, 0, 0, 17 + (at), 0, 0, 0, 18 + (at), 0, 0, 0, 19 + (at)) >> 24, \
        f4)

// Eight e2m1 codes of a word, and sixteen of two.
INLINE u8x16 e2m1_bytes(uint64_t codes) {
    u8x16 v = (u8x16)(u4){(uint32_t)codes, (uint32_t)(codes >> 32), 0, 0}, low = v & 15, high = (u8x16)((u16x8)v >> 4) & 15;
    u8x16 each = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return u8x16_look_up((u8x16)u4_load(E2M1_DOUBLED), each);
}

// Four e4m3 codes.
INLINE f4 e4m3_four(u4 codes) {
    u4 size = codes & 127, nan = (u4)(size == 127) & 0x7fc00000u;
    f4 numbers = (f4)(size << 20) * f4_splat(0x1p120f); // exponents are 120 less; subnormal numbers come out right too
    return (f4)((u4)numbers | nan | (codes & 128) << 24);
}

INLINE u4 e4m3_load(const uint8_t *from) { return (u4){from[0], from[1], from[2], from[3]}; }

// Eight numbers, times a scale.
INLINE void small_floats8(const uint8_t *codes, uint32_t mode, float scale, float *to) {
    f4 low, high;
    if (mode == MODE_MXFP8) {
        low = e4m3_four(e4m3_load(codes)) * f4_splat(scale), high = e4m3_four(e4m3_load(codes + 4)) * f4_splat(scale);
    } else {
        u8x16 bytes = e2m1_bytes(*(const uint32_t *)codes);
        low = E2M1_FOUR(bytes, 0) * f4_splat(scale * 0.5f), high = E2M1_FOUR(bytes, 4) * f4_splat(scale * 0.5f);
    }
    f4_store(to, low), f4_store(to + 4, high);
}

// Sixteen.
INLINE void small_floats16(const uint8_t *codes, uint32_t mode, float scale, float *to) {
    if (mode == MODE_MXFP8) {
        small_floats8(codes, mode, scale, to), small_floats8(codes + 8, mode, scale, to + 8);
        return;
    }
    u8x16 bytes = e2m1_bytes((uint64_t)((const uint32_t *)codes)[1] << 32 | *(const uint32_t *)codes);
    f4 half_scale = f4_splat(scale * 0.5f);
    f4_store(to, E2M1_FOUR(bytes, 0) * half_scale), f4_store(to + 4, E2M1_FOUR(bytes, 4) * half_scale);
    f4_store(to + 8, E2M1_FOUR(bytes, 8) * half_scale), f4_store(to + 12, E2M1_FOUR(bytes, 12) * half_scale);
}

#endif
