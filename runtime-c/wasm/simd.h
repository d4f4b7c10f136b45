// Four floats or integers at a time, through compiler vectors: one source for WASM SIMD and native test builds.

#ifndef VKMX_WASM_SIMD_H
#define VKMX_WASM_SIMD_H
#include "kernel.h"

typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef uint32_t u4 __attribute__((vector_size(16)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));

// Element pointers of strided views carry no more alignment than their element.
typedef f4 f4_unaligned __attribute__((aligned(4), may_alias));
typedef u4 u4_unaligned __attribute__((aligned(4), may_alias));
typedef u16x8 u16x8_unaligned __attribute__((aligned(2), may_alias));
typedef uint16_t u16x4_unaligned __attribute__((vector_size(8), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE f4 f4_load(const float *p) { return *(const f4_unaligned *)p; }
INLINE void f4_store(float *p, f4 v) { *(f4_unaligned *)p = v; }
INLINE f4 f4_splat(float x) { return (f4){x, x, x, x}; }
INLINE u4 u4_load(const void *p) { return *(const u4_unaligned *)p; }

// The larger of each lane; a if one is NaN.
INLINE f4 f4_max(f4 a, f4 b) {
#ifdef __wasm_simd128__
    return __builtin_wasm_pmax_f32x4(a, b);
#else
    u4 m = (u4)(a < b);
    return (f4)(((u4)b & m) | ((u4)a & ~m));
#endif
}

// Lanes below 2^31. The empty asm hides that from the compiler, which would choose the unsigned conversion: many times
// slower on x86.
INLINE f4 f4_from_ints(u4 v) {
#ifdef __wasm__
    __asm__("" : "+r"(v));
#endif
    return __builtin_convertvector((i4)v, f4);
}

// a * b + c, fused where the machine can: either rounding is accurate enough for sums.
INLINE f4 f4_fma(f4 a, f4 b, f4 c) {
#ifdef __wasm_relaxed_simd__
    return __builtin_wasm_relaxed_madd_f32x4(a, b, c);
#else
    return a * b + c;
#endif
}

// Bytes of a table at indices below 16.
INLINE u8x16 u8x16_look_up(u8x16 table, u8x16 indices) {
#ifdef __wasm_simd128__
    return (u8x16)__builtin_wasm_swizzle_i8x16((__attribute__((vector_size(16))) char)table,
                                               (__attribute__((vector_size(16))) char)indices);
#else
    u8x16 found;
    for (int i = 0; i < 16; i++) found[i] = table[indices[i] & 15];
    return found;
#endif
}

// Sums of the products of neighbours: lane i is a[2i] * b[2i] + a[2i + 1] * b[2i + 1].
INLINE i4 i4_dot(i16x8 a, i16x8 b) {
#ifdef __wasm_simd128__
    return __builtin_wasm_dot_s_i32x4_i16x8(a, b);
#else
    i4 sums;
    for (int i = 0; i < 4; i++) sums[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    return sums;
#endif
}

// Fixes the place of two sums (vectors in variables) among the instructions. On its own the compiler finishes one sum
// after the other. That keeps all operands alive at once and spills them: a third of the speed.
#ifdef __wasm__
#define keep_order(a, b) __asm__ volatile("" : "+r"(*(a)), "+r"(*(b)) : : "memory")
#else
#define keep_order(a, b) (void)(a), (void)(b)
#endif

INLINE float f4_sum(f4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// exp for x <= 0 to 2 units in the last place; from -87 down the result is 0, NaN stays. x = n ln 2 + r, and a
// polynomial of r times 2^n.
INLINE f4 f4_exp_negative(f4 x) {
    const float magic = 0x1.8p23f; // added and taken away it rounds to an integer
    f4 n = (x * 1.44269504f + magic) - magic;
    f4 r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    f4 y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    u4 exponent = (u4)((i4)(n + (magic + 127.0f)) << 23);
    f4 result = y * (f4)exponent;
    return (f4)((u4)result & ~(u4)(x <= -87.0f));
}

// Rows to columns, in place.
INLINE void f4_transpose(f4 *a, f4 *b, f4 *c, f4 *d) {
    f4 ab_low = __builtin_shufflevector(*a, *b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(*a, *b, 2, 6, 3, 7);
    f4 cd_low = __builtin_shufflevector(*c, *d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(*c, *d, 2, 6, 3, 7);
    *a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// The four sums of four vectors.
INLINE f4 f4_sum4(f4 a, f4 b, f4 c, f4 d) {
    f4_transpose(&a, &b, &c, &d);
    return (a + b) + (c + d);
}

// Four float16 values. Exponent and mantissa move to their float32 places. A multiplication corrects the exponent's
// bias and normalises subnormals; infinities and NaN get their exponent back.
INLINE f4 f4_from_f16(u4 h) {
    u4 magnitude = h & 0x7fffu;
    f4 value = (f4)(magnitude << 13) * f4_splat(0x1p112f);
    u4 special = (u4)(magnitude >= 0x7c00u) & 0x7f800000u;
    return (f4)((u4)value | special | (h & 0x8000u) << 16);
}

// The inverse, rounded to nearest even: f16_bits of kernel.h in four lanes.
INLINE u4 f16_from_f4(f4 x) {
    u4 all = (u4)x, u = all & 0x7fffffffu;
    u4 subnormal = (u4)((f4)u + 0.5f) - 0x3f000000u;
    u4 half = (u + 0x0fffu + ((u >> 13) & 1u) - 0x38000000u) >> 13;
    u4 is_small = (u4)((i4)u < 0x38800000), is_large = (u4)((i4)u >= 0x477ff000), is_nan = (u4)((i4)u > 0x7f800000);
    half = (subnormal & is_small) | (half & ~is_small);
    half = (half & ~is_large) | (is_large & 0x7c00u);
    return (all >> 16 & 0x8000u) | half | (is_nan & 0x200u);
}

// Eight lanes of 16 bits.
INLINE u16x8 narrow_halves(u4 a, u4 b) {
#ifdef __wasm_simd128__
    return (u16x8)__builtin_wasm_narrow_u_i16x8_i32x4((i4)a, (i4)b);
#else
    return __builtin_shufflevector((u16x8)a, (u16x8)b, 0, 2, 4, 6, 8, 10, 12, 14);
#endif
}

INLINE void store_halves(uint16_t *to, const float *from, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        u4 a = f16_from_f4(f4_load(from + i)), b = f16_from_f4(f4_load(from + i + 4));
        *(u16x8_unaligned *)(to + i) = narrow_halves(a, b);
    }
    for (; i < n; i++) to[i] = (uint16_t)f16_bits(from[i]);
}

// Four consecutive floats of a float dtype.
INLINE f4 f4_load_as(const uint8_t *a, size_t i, uint32_t dtype) {
    if (dtype == DTYPE_F32) return f4_load((const float *)a + i);
    u4 h = __builtin_convertvector(*(const u16x4_unaligned *)((const uint16_t *)a + i), u4);
    return dtype == DTYPE_BF16 ? (f4)(h << 16) : f4_from_f16(h);
}

INLINE void load_run_as(float *to, const uint8_t *a, size_t first, size_t n, uint32_t dtype) {
    size_t i = 0;
    for (; i + 4 <= n; i += 4) f4_store(to + i, f4_load_as(a, first + i, dtype));
    for (; i < n; i++) to[i] = load_float(a, first + i, dtype);
}

// load_floats with vector conversions.
static inline void load_run(float *to, const uint8_t *a, size_t first, size_t n, uint32_t dtype) {
    if (dtype == DTYPE_F32) load_run_as(to, a, first, n, DTYPE_F32);
    else if (dtype == DTYPE_BF16) load_run_as(to, a, first, n, DTYPE_BF16);
    else load_run_as(to, a, first, n, DTYPE_F16);
}

// Four consecutive floats to a float dtype.
INLINE void store_four(uint8_t *a, size_t first, uint32_t dtype, f4 x) {
    if (dtype == DTYPE_F32) f4_store((float *)a + first, x);
    else
        for (int i = 0; i < 4; i++) store_float(a, first + i, dtype, x[i]);
}

INLINE uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Rounds a run to a 16-bit dtype and back.
static inline void round_run(float *x, size_t n, uint32_t dtype) {
    if (dtype == DTYPE_F16)
        for (size_t i = 0; i < n; i++) x[i] = f16_value(f16_bits(x[i]));
    if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) x[i] = bf16_value(bf16_bits(x[i]));
}

#endif
