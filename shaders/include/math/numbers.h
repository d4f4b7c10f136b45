// Numbers of both executors: what GLSL and C call alike, bits of floats, comparisons, divisions and conversions. Every function here and
// in math.h is valid GLSL and C, so that Vulkan and WASM agree.
//
// GPU compilers may assume that NaN does not occur. So NaN is recognized by its bits (m_isnan) and put in at the end,
// and sums whose rounding matters are PRECISE.

#ifndef VKMX_NUMBERS_H
#define VKMX_NUMBERS_H

#define VKMX_MATH_H

#ifdef GL_core_profile
#define FN
#define PRECISE precise
#define FLOAT(x) float(x)
#define INT(x) int(x)
#define UINT(x) uint(x)
#define BITS(x) floatBitsToUint(x)
#define FROM_BITS(u) uintBitsToFloat(u)
#define m_sqrt(x) sqrt(x)
#define m_floor(x) floor(x)
#define m_ceil(x) ceil(x)
#define m_trunc(x) trunc(x)
#define m_round(x) roundEven(x)
#define m_fma(x, y, z) fma(x, y, z)
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint32_t uint;
#define FN static inline __attribute__((always_inline, unused))
#define PRECISE
#define FLOAT(x) ((float)(x))
#define INT(x) ((int)(x))
#define UINT(x) ((unsigned)(x))
#define BITS(x) __builtin_bit_cast(unsigned, (float)(x))
#define FROM_BITS(u) __builtin_bit_cast(float, (unsigned)(u))
#define m_sqrt(x) __builtin_elementwise_sqrt(x)
#define m_floor(x) __builtin_elementwise_floor(x)
#define m_ceil(x) __builtin_elementwise_ceil(x)
#define m_trunc(x) __builtin_elementwise_trunc(x)
#define m_round(x) __builtin_elementwise_roundeven(x)
#define m_fma(x, y, z) ((x) * (y) + (z)) // rounded twice: the CPU's modules have no quick fused one
#endif

#define M_INF FROM_BITS(0x7f800000u)
#define M_NAN FROM_BITS(0x7fc00000u)

// ---- bits ---------------------------------------------------------------------------------------------------------

FN float m_abs(float x) { return FROM_BITS(BITS(x) & 0x7fffffffu); }
FN bool m_isnan(float x) { return (BITS(x) & 0x7fffffffu) > 0x7f800000u; }
FN bool m_isinf(float x) { return (BITS(x) & 0x7fffffffu) == 0x7f800000u; }
FN bool m_nonzero(float x) { return (BITS(x) & 0x7fffffffu) != 0u; } // NaN is true
FN float m_copysign(float x, float sign) { return FROM_BITS((BITS(x) & 0x7fffffffu) | (BITS(sign) & 0x80000000u)); }
FN float m_negative(float x) { return FROM_BITS(BITS(x) ^ 0x80000000u); }
FN float m_sign(float x) { return m_isnan(x) || !m_nonzero(x) ? 0.0f : m_copysign(1.0f, x); }
FN uint m_magnitude(int x) { return x < 0 ? 0u - UINT(x) : UINT(x); }

// Subnormal numbers: devices may take them for 0 in any operation on floats, in some of them only. In units of 2^-149 they are the
// integer of their bits.
FN bool m_is_subnormal(float x) { return (BITS(x) & 0x7fffffffu) < 0x00800000u; } // or 0
FN float m_subnormal_units(float x) { return FLOAT(INT(BITS(x) & 0x007fffffu)); }

// x on its side of 0 for rounding to whole numbers.
#ifdef __wasm__
#define m_beside_zero(x) (x)
#else
FN float m_beside_zero(float x) { return m_is_subnormal(x) && m_nonzero(x) ? m_copysign(0.5f, x) : x; }
#endif

// A whole number that compares as the float does. Both zeros are one key; NaN is the largest.
FN uint m_key(float x) {
    uint bits = BITS(x);
    if (m_isnan(x)) return 0xffffffffu;
    if (bits == 0x80000000u) return 0x80000000u;
    return bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
}

// Comparisons: by keys where subnormal numbers may count as 0, so that all of them and the sorts agree.
#ifdef __wasm__
#define m_equal(a, b) ((a) == (b))
#define m_less(a, b) ((a) < (b))
#define m_less_equal(a, b) ((a) <= (b))
FN float m_maximum(float a, float b) { return m_isnan(a) ? a : (a > b ? a : b); } // b where that is NaN
FN float m_minimum(float a, float b) { return m_isnan(a) ? a : (a < b ? a : b); }
#else
FN bool m_equal(float a, float b) { return !m_isnan(a) && m_key(a) == m_key(b); }
FN bool m_less(float a, float b) { return !m_isnan(b) && m_key(a) < m_key(b); }
FN bool m_less_equal(float a, float b) { return !m_isnan(b) && m_key(a) <= m_key(b); }
FN float m_maximum(float a, float b) { return m_isnan(a) ? a : (m_isnan(b) ? b : (m_key(a) > m_key(b) ? a : b)); }
FN float m_minimum(float a, float b) { return m_isnan(a) ? a : (m_isnan(b) ? b : (m_key(a) < m_key(b) ? a : b)); }
#endif

// a / b. Vulkan leaves divisors beyond 2^126 open (infinity by 3e38 may give NaN): both are scaled then.
#ifdef GL_core_profile
float m_divide(float a, float b) {
    float unit = m_abs(b) > 8.507059e37f ? 0.25f : 1.0f;
    PRECISE float x = a * unit, y = b * unit;
    return x / y;
}
#else
#define m_divide(a, b) ((a) / (b))
#endif

// a / b of a normal positive b, within 2 ULP. The steps leave compilers no choice of how to divide, so every kernel
// gives the same bits. In three steps of Newton from a reciprocal that is 12 % off.
#ifdef GL_core_profile
float m_divide_steady(float a, float b) {
    float unit = b > 8.507059e37f ? 0.25f : 1.0f; // the reciprocal would be subnormal
    a *= unit;
    b *= unit;
    float r = FROM_BITS(0x7ef311c3u - BITS(b));
    for (int i = 0; i < 3; i++) {
        PRECISE float rest = m_fma(-b, r, 1.0f);
        r = m_fma(r, rest, r);
    }
    return a * r;
}
#else
#define m_divide_steady(a, b) ((a) / (b))
#endif

// 2^n for -126 <= n <= 127, and x * 2^n for |n| <= 252 in two steps, so that results may overflow or be subnormal.
FN float m_pow2i(int n) { return FROM_BITS(UINT(n + 127) << 23); }
FN float m_scale(float x, int n) {
    int half_n = n >> 1;
    PRECISE float y = x * m_pow2i(half_n);
    return y * m_pow2i(n - half_n);
}

// Casts that truncate and saturate; NaN gives 0.
#if defined(__wasm__)
FN int m_to_int(float x) { return __builtin_wasm_trunc_saturate_s_i32_f32(x); }
FN uint m_to_uint(float x) { return __builtin_wasm_trunc_saturate_u_i32_f32(x); }
#else
FN int m_to_int(float x) {
    bool inside = x > -2147483648.0f && x < 2147483648.0f;
    int edge = x > 0.0f ? 0x7fffffff : -0x7fffffff - 1;
    return m_isnan(x) ? 0 : (inside ? INT(inside ? x : 0.0f) : edge);
}
FN uint m_to_uint(float x) {
    bool inside = x > 0.0f && x < 4294967296.0f;
    uint edge = x > 0.0f ? 0xffffffffu : 0u;
    return m_isnan(x) ? 0u : (inside ? UINT(inside ? x : 0.0f) : edge);
}
#endif

// A whole number below 2^22 in magnitude as int; others give anything. Engines take many instructions for a cast that saturates.
#ifdef GL_core_profile
#define m_small_int(x) m_to_int(x)
#else
#define m_small_int(x) (INT(BITS((x) + 12582912.0f)) - 0x4b400000)
#endif

// y, or NaN if x is: for y that would be NaN by its arithmetic, on which GPU compilers need not look. Not x itself: Mesa 26 loses bits of
// a y that has the sign of x.
#ifdef GL_core_profile
#define m_or_nan(x, y) (m_isnan(x) ? M_NAN : (y))
#else
#define m_or_nan(x, y) (y)
#endif

// The float nearest to a whole number. On the CPU from its halves, which are the last bits of 2^39 and 2^23. Only their
// sum rounds. Engines convert vectors of unsigned numbers slowly.
#ifdef GL_core_profile
#define m_from_uint(x) FLOAT(x)
#else
FN float m_from_uint(uint x) {
    float high = FROM_BITS(x >> 16 | 0x53000000u) - 549764202496.0f;
    return high + FROM_BITS((x & 0xffffu) | 0x4b000000u);
}
#endif

// ---- division with remainder --------------------------------------------------------------------------------------

// Integers: floored quotient and remainder; for a divisor of 0 the quotient is 0 and the remainder the dividend.
FN int m_divide_int(int a, int b) {
    uint divisor = m_magnitude(b) | UINT(b == 0);
    uint q = b == 0 ? 0u : m_magnitude(a) / divisor;
    if ((a < 0) == (b < 0)) return INT(q);
    return INT(0u - q - UINT(m_magnitude(a) % divisor != 0u && b != 0));
}

FN int m_remainder_int(int a, int b) {
    if (b == 0) return a;
    uint r = m_magnitude(a) % (m_magnitude(b) | UINT(b == 0));
    int y = INT(a < 0 ? 0u - r : r);
    return y != 0 && (y < 0) != (b < 0) ? y + b : y;
}

// |a| mod |b| of finite a and b != 0, exactly: long division of the 24-bit mantissas, 8 bits a step.
FN float m_fmod_magnitude(float a, float b) {
    uint ua = BITS(a) & 0x7fffffffu, ub = BITS(b) & 0x7fffffffu;
    if (ua < ub) return FROM_BITS(ua);
    int ea = INT(ua >> 23), eb = INT(ub >> 23);
    uint ma = ua & 0x007fffffu, mb = ub & 0x007fffffu;
    if (ea != 0) ma |= 0x00800000u;
    else ea = 1;
    if (eb != 0) mb |= 0x00800000u;
    else eb = 1;
    ma %= mb;
    for (int left = ea - eb; left > 0 && ma != 0u; left -= 8) ma = (ma << (left < 8 ? left : 8)) % mb;
    PRECISE float unit = FLOAT(ma) * 1.1920929e-7f; // 2^-23
    return eb < 255 ? unit * m_pow2i(eb - 127) : 0.0f;
}

// Floored remainder: the sign of b. 0 or infinity by anything as Python's % of floats has it.
FN float m_remainder(float a, float b) {
    if (m_isnan(a) || m_isnan(b) || m_isinf(a) || !m_nonzero(b)) return M_NAN;
    float r = m_isinf(b) ? m_abs(a) : m_fmod_magnitude(a, b);
    if (!m_nonzero(r)) return m_copysign(0.0f, b);
    r = m_copysign(r, a);
    return BITS(r) >> 31 != BITS(b) >> 31 ? r + b : r; // r may be subnormal, which devices may take for 0
}

#endif
