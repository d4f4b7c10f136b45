// Mathematics of both executors: every function here is valid GLSL and C, so that Vulkan and WASM agree.
//
// The functions are branch-free polynomials (selects instead of jumps), which C compilers turn into SIMD loops; errors
// are a few units in the last place. Infinities, NaN and zeros give what C's math library gives. GPU compilers may
// assume that NaN does not occur: NaN is therefore told by bits (m_isnan) and put in at the end, and sums whose
// rounding matters are PRECISE. Range reductions of sin, cos and tan hold for |x| up to 2^24; far.h has those beyond.

#ifndef VKMX_MATH_H
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

// a / b of a normal positive b, within 2 ULP, in steps that leave compilers no choice of how to divide: the same bits in every kernel. In
// three steps of Newton from a reciprocal that is 12 % off.
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

// y, or NaN where x is: for y that would be NaN by its arithmetic, on which GPU compilers need not look. Not x itself: Mesa 26 loses bits of
// a y that has the sign of x.
#ifdef GL_core_profile
#define m_or_nan(x, y) (m_isnan(x) ? M_NAN : (y))
#else
#define m_or_nan(x, y) (y)
#endif

// The float nearest to a whole number. On the CPU from its halves, which lie in the last bits of 2^39 and 2^23, with one rounding, in the
// sum: engines convert vectors of unsigned numbers slowly.
#ifdef GL_core_profile
#define m_from_uint(x) FLOAT(x)
#else
FN float m_from_uint(uint x) {
    float high = FROM_BITS(x >> 16 | 0x53000000u) - 549764202496.0f;
    return high + FROM_BITS((x & 0xffffu) | 0x4b000000u);
}
#endif

// ---- exponentials -------------------------------------------------------------------------------------------------

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
FN float m_exp_tail(float r) { return 0.5f + r * (0.16666573f + r * (0.04166655f + r * (0.008363767f + r * 0.0013926919f))); }

// (e^x in the range of both: x = n ln 2 + r.)
FN float m_ln2_rest(float x, float n) {
    PRECISE float r = x - n * 0.693115234375f;
    return r - n * 3.1946183e-5f;
}

// e^r, |r| <= ln(2) / 2
FN float m_exp_unit(float r) { return 1.0f + (r + r * r * m_exp_tail(r)); }

FN float m_exp(float x) {
    float t = x > 89.0f ? 89.0f : (x < -104.0f ? -104.0f : x);
    float n = m_round(t * 1.44269504f);
    float y = m_scale(m_exp_unit(m_ln2_rest(t, n)), m_small_int(n));
    return m_or_nan(x, y);
}

// The same where the result is a normal number, |x| <= 87.
FN bool m_exp_is_near(float x) { return m_abs(x) <= 87.0f; }
#ifdef GL_core_profile
float m_exp_near(float x) { return m_exp(x); } // in fused decoding lavapipe gets the short form of erf wrong
#else
FN float m_exp_near(float x) {
    float n = m_round(x * 1.44269504f);
    return m_exp_unit(m_ln2_rest(x, n)) * m_pow2i(m_small_int(n));
}
#endif

FN float m_exp2_unit(float r) { // |r| <= 1/2
    float p = 0.05550357f + r * (0.009618083f + r * (0.0013390863f + r * 0.00015453163f));
    return 1.0f + r * (0.6931472f + r * (0.2402265f + r * p));
}

FN float m_exp2(float x) {
    float t = x > 129.0f ? 129.0f : (x < -151.0f ? -151.0f : x);
    float n = m_round(t);
    float y = m_scale(m_exp2_unit(t - n), m_small_int(n));
    return m_or_nan(x, y);
}

// e^x - 1 for |x| <= 30; -0 gives 0.
FN float m_expm1_near(float x) {
    float n = m_round(x * 1.44269504f);
    float r = m_ln2_rest(x, n), scale = m_pow2i(m_small_int(n));
    return scale * (r + r * r * m_exp_tail(r)) + (scale - 1.0f);
}

FN float m_expm1(float x) {
    float y = m_expm1_near(x > 30.0f ? 30.0f : (x < -30.0f ? -30.0f : x));
    return m_isnan(x) || !m_nonzero(x) ? x : (x > 20.0f ? m_exp(x) : y);
}

FN float m_sigmoid(float x) { return 1.0f / (1.0f + m_exp(-x)); }

// ---- logarithms ---------------------------------------------------------------------------------------------------
// x = 2^e (1 + f) with 1 + f in sqrt(1/2) .. sqrt(2).

FN uint m_log_bits(float x) { return BITS(m_is_subnormal(x) ? m_subnormal_units(x) : x) - 0x3f3504f3u; }

FN float m_log_exponent(float x) { return FLOAT(INT(m_log_bits(x)) >> 23) - (m_is_subnormal(x) ? 149.0f : 0.0f); }

FN float m_log_fraction(float x) { return FROM_BITS((m_log_bits(x) & 0x007fffffu) + 0x3f3504f3u) - 1.0f; }

// log(1 + f) - f
FN float m_log_tail(float f) {
    float p = -0.12425487f + f * (0.11685719f + f * (-0.11481477f + f * 0.06973071f));
    p = 0.3333333f + f * (-0.24999997f + f * (0.20000717f + f * (-0.16667809f + f * (0.14249009f + f * p))));
    return f * f * (f * p - 0.5f);
}

// The logarithm y of a positive number, put right for all others.
FN float m_log_special(float x, float y) {
    y = BITS(x) >> 31 != 0u ? M_NAN : y;
    y = m_nonzero(x) ? y : -M_INF;
    return m_isnan(x) || BITS(x) == 0x7f800000u ? x : y;
}

FN float m_log(float x) {
    float e = m_log_exponent(x), f = m_log_fraction(x);
    return m_log_special(x, e * 0.693115234375f + (f + (m_log_tail(f) + e * 3.1946183e-5f)));
}

// The same for positive normal numbers.
FN bool m_log_is_near(float x) { return BITS(x) - 0x00800000u < 0x7f000000u; }
FN float m_log_near(float x) {
    uint u = BITS(x) - 0x3f3504f3u;
    float e = FLOAT(INT(u) >> 23), f = FROM_BITS((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    return e * 0.693115234375f + (f + (m_log_tail(f) + e * 3.1946183e-5f));
}

FN float m_log2(float x) {
    float f = m_log_fraction(x), t = m_log_tail(f);
    // log2(e) = 1 + 0.44269504
    return m_log_special(x, m_log_exponent(x) + (f + (t + (f + t) * 0.44269504f)));
}

FN float m_log10(float x) {
    float e = m_log_exponent(x), f = m_log_fraction(x);
    // log10(2) in two parts, the first of 12 bits
    return m_log_special(x, e * 0.301025390625f + (e * 4.6050390e-6f + (f + m_log_tail(f)) * 0.43429448f));
}

FN float m_log1p(float x) {
    PRECISE float u = 1.0f + x;
    PRECISE float lost = x - (u - 1.0f); // what the sum rounded away
    float y = m_log(u);
    y = m_isnan(y) || m_isinf(y) ? y : y + m_divide_steady(lost, u);
    return m_nonzero(x) ? y : x; // -0 stays
}

FN float m_logaddexp(float a, float b) {
    float most = m_maximum(a, b);
    float y = most + m_log1p(m_exp(-m_abs(a - b)));
    return m_isinf(most) ? most : y;
}

// ---- powers -------------------------------------------------------------------------------------------------------

// a^|b| for whole |b| < 64, by squaring: exact where the result is.
FN float m_pow_whole(float a, float b) {
    uint n = UINT(m_small_int(m_abs(b))) & 63u;
    float y = 1.0f, p = a;
    y = (n & 1u) != 0u ? p : y;
    p *= p;
    y = (n & 2u) != 0u ? y * p : y;
    p *= p;
    y = (n & 4u) != 0u ? y * p : y;
    p *= p;
    y = (n & 8u) != 0u ? y * p : y;
    p *= p;
    y = (n & 16u) != 0u ? y * p : y;
    p *= p;
    y = (n & 32u) != 0u ? y * p : y;
    return b < 0.0f ? 1.0f / y : y;
}

// (2^e (1 + f))^b = 2^(b (e + l)), the product with the exponent e kept apart from the one with l, the logarithm of 1 + f.
FN float m_pow_parts(float e, float f, float b) {
    float t = m_log_tail(f), l = f + (t + (f + t) * 0.44269504f);
    float p = b * (e + l);
    p = p > 250.0f ? 250.0f : (p < -250.0f ? -250.0f : p);
    float n = m_round(p);
    PRECISE float whole = b * e - n;
    PRECISE float rest = whole + b * l;
    rest = m_abs(rest) <= 1.0f ? rest : 0.0f; // clamped: the result overflows or vanishes anyway
    return m_scale(m_exp2_unit(rest), m_small_int(n));
}

// The power of a positive normal number, and an exponent that is not whole.
FN bool m_pow_is_near(float a, float b) { return (UINT(m_log_is_near(a)) & UINT(m_abs(b - m_trunc(b)) > 0.0f)) != 0u; }
FN float m_pow_near(float a, float b) {
    uint u = BITS(a) - 0x3f3504f3u;
    return m_pow_parts(FLOAT(INT(u) >> 23), FROM_BITS((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, b);
}

FN float m_pow(float a, float b) {
    float x = m_abs(a), y = m_pow_parts(m_log_exponent(x), m_log_fraction(x), b);

    bool is_whole = m_trunc(b) == b, odd = is_whole && m_trunc(0.5f * b) * 2.0f != b;
    y = m_nonzero(x) ? y : (b < 0.0f ? M_INF : 0.0f);
    y = BITS(x) == 0x7f800000u ? (b < 0.0f ? 0.0f : M_INF) : y;
    y = m_isinf(b) ? (x == 1.0f ? 1.0f : ((x > 1.0f) == (b > 0.0f) ? M_INF : 0.0f)) : y;
    y = BITS(a) >> 31 != 0u ? (odd ? -y : (is_whole || !m_nonzero(x) || m_isinf(a) ? y : M_NAN)) : y;
    y = is_whole && m_abs(b) < 64.0f && m_nonzero(x) && !m_isinf(a) ? m_pow_whole(a, b) : y;
    y = m_isnan(b) ? b : y;
    y = m_isnan(a) ? a : y;
    return !m_nonzero(b) || BITS(a) == 0x3f800000u ? 1.0f : y;
}

FN uint m_pow_uint(uint a, uint b) {
    uint y = 1u;
    for (; b != 0u; b >>= 1) {
        if ((b & 1u) != 0u) y *= a;
        a *= a;
    }
    return y;
}

FN int m_pow_int(int a, int b) { return b < 0 ? 0 : INT(m_pow_uint(UINT(a), UINT(b))); }

// ---- trigonometry -------------------------------------------------------------------------------------------------

// x = (many + few) pi/2 + rest, |rest| <= pi/4: many is a multiple of 4096 and few at most 2049 for |x| <= 2^24. pi/2
// comes in parts of 12 bits, so that products with either are exact, and so is what is left of x until it is small.
FN float m_many_quarters(float x) { return m_round(x * 1.5542475e-4f) * 4096.0f; } // 2/pi/4096

FN float m_quarters_begin(float x, float n) {
    PRECISE float r = x - n * 1.5703125f;
    r = r - n * 4.837512969970703e-4f;
    return r;
}

FN float m_few_quarters(float x, float many) {
    PRECISE float r = m_quarters_begin(x, many) - many * 7.549533620476723e-8f;
    return m_round(r * 0.636619772f);
}

FN float m_quarters_rest(float x, float many, float few) {
    PRECISE float r = m_quarters_begin(m_quarters_begin(x, many), few);
    r = r - many * 7.549533620476723e-8f;
    r = r - few * 7.549533620476723e-8f;
    r = r - many * 2.5579538487363607e-12f;
    r = r - few * 2.5579538487363607e-12f;
    r = r - (many + few) * 5.390302858158119e-15f;
    return r;
}

FN float m_sin_unit(float r) { // |r| <= pi/4
    float u = r * r;
    return r + r * u * (-0.16666667f + u * (0.008333332f + u * (-0.00019840083f + u * 2.7249314e-6f)));
}

FN float m_cos_unit(float r) {
    float u = r * r;
    return 1.0f + u * (u * (0.041666664f + u * (-0.00138883f + u * 2.4547437e-5f)) - 0.5f);
}

FN float m_sin(float x) {
    float many = m_many_quarters(x), few = m_few_quarters(x, many), r = m_quarters_rest(x, many, few);
    uint quadrant = UINT(m_small_int(few));
    float y = (quadrant & 1u) != 0u ? m_cos_unit(r) : m_sin_unit(r);
    y = (quadrant & 2u) != 0u ? -y : y;
    y = m_nonzero(x) ? y : x; // -0 stays
    return m_isnan(x) || m_isinf(x) ? M_NAN : y;
}

FN float m_cos(float x) {
    float many = m_many_quarters(x), few = m_few_quarters(x, many), r = m_quarters_rest(x, many, few);
    uint quadrant = UINT(m_small_int(few));
    float y = (quadrant & 1u) != 0u ? m_sin_unit(r) : m_cos_unit(r);
    y = ((quadrant + 1u) & 2u) != 0u ? -y : y;
    return m_isnan(x) || m_isinf(x) ? M_NAN : y;
}

// The same of |x| <= 3000, which has few quarters.
FN bool m_sin_is_near(float x) { return m_abs(x) <= 3000.0f; }
FN float m_near_rest(float x, float few) {
    PRECISE float r = m_quarters_begin(x, few);
    r = r - few * 7.549533620476723e-8f;
    r = r - few * 2.5579538487363607e-12f;
    return r - few * 5.390302858158119e-15f;
}

FN float m_sin_near(float x) {
    float few = m_round(x * 0.636619772f), r = m_near_rest(x, few);
    uint quadrant = UINT(m_small_int(few));
    float y = (quadrant & 1u) != 0u ? m_cos_unit(r) : m_sin_unit(r);
    return m_nonzero(x) ? FROM_BITS(BITS(y) ^ (quadrant & 2u) << 30) : x; // -0 stays
}

FN float m_cos_near(float x) {
    float few = m_round(x * 0.636619772f), r = m_near_rest(x, few);
    uint quadrant = UINT(m_small_int(few));
    float y = (quadrant & 1u) != 0u ? m_sin_unit(r) : m_cos_unit(r);
    return FROM_BITS(BITS(y) ^ ((quadrant + 1u) & 2u) << 30);
}

FN float m_tan(float x) {
    float many = m_many_quarters(x), few = m_few_quarters(x, many), r = m_quarters_rest(x, many, few);
    float s = m_sin_unit(r), c = m_cos_unit(r);
    float y = (m_small_int(few) & 1) != 0 ? -c / s : s / c;
    y = m_nonzero(x) ? y : x; // -0 stays
    return m_isnan(x) || m_isinf(x) ? M_NAN : y;
}

FN float m_asin_unit(float t) { // 0 <= t <= 1/2
    float u = t * t;
    return t + t * u * (0.16666673f + u * (0.07498855f + u * (0.04500138f + u * (0.026554542f + u * 0.038085025f))));
}

FN float m_asin(float x) {
    float a = m_abs(x);
    bool big = a > 0.5f;
    float t = m_asin_unit(big ? m_sqrt(a < 1.0f ? 0.5f - 0.5f * a : 0.0f) : a);
    float y = m_copysign(big ? 1.57079633f - 2.0f * t : t, x);
    return a <= 1.0f && !m_isnan(x) ? y : M_NAN;
}

FN float m_acos(float x) {
    float a = m_abs(x);
    bool big = a > 0.5f;
    float t = m_asin_unit(big ? m_sqrt(a < 1.0f ? 0.5f - 0.5f * a : 0.0f) : a);
    float y = big ? (x > 0.0f ? 2.0f * t : 3.14159265f - 2.0f * t) : 1.57079633f - m_copysign(t, x);
    return a <= 1.0f && !m_isnan(x) ? y : M_NAN;
}

FN float m_atan_unit(float t) { // 0 <= t <= 1
    float u = t * t;
    float p = -0.08009682f + u * (0.04891432f + u * (-0.020026747f + u * 0.0038667389f));
    p = -0.33333322f + u * (0.19998682f + u * (-0.14257045f + u * (0.10865759f + u * p)));
    return t + t * u * p;
}

FN float m_atan(float x) {
    float a = m_abs(x);
    float t = m_atan_unit(a > 1.0f ? 1.0f / a : a);
    float y = m_copysign(a > 1.0f ? 1.57079633f - t : t, x);
    return m_isnan(x) ? M_NAN : y;
}

FN float m_atan2(float y, float x) {
    float ay = m_abs(y), ax = m_abs(x);
    bool steep = BITS(ay) > BITS(ax), small = m_is_subnormal(ay) && m_is_subnormal(ax); // a device may take these for 0
    ay = small ? m_subnormal_units(ay) : ay;
    ax = small ? m_subnormal_units(ax) : ax;
    float high = steep ? ay : ax, low = steep ? ax : ay;
    float ratio = m_isinf(low) ? 1.0f : (m_nonzero(high) ? m_divide(low, high) : 0.0f);
    float t = m_atan_unit(ratio);
    t = steep ? 1.57079633f - t : t;
    t = BITS(x) >> 31 != 0u ? 3.14159265f - t : t;
    return m_isnan(x) || m_isnan(y) ? M_NAN : m_copysign(t, y);
}

// ---- hyperbolic functions -----------------------------------------------------------------------------------------

FN float m_sinh(float x) {
    float a = m_abs(x), e = m_expm1_near(a > 20.0f ? 20.0f : a), h = m_exp(0.5f * a);
    float y = a > 20.0f ? 0.5f * h * h : 0.5f * (e + e / (e + 1.0f));
    return m_isnan(x) ? M_NAN : m_copysign(y, x);
}

FN float m_cosh(float x) {
    float a = m_abs(x), e = m_exp(a), h = m_exp(0.5f * a);
    float y = a > 20.0f ? 0.5f * h * h : 0.5f * (e + 1.0f / e);
    return m_isnan(x) ? x : y;
}

FN float m_tanh(float x) {
    float a = m_abs(x), e = m_expm1_near(a > 10.0f ? 20.0f : 2.0f * a);
    return m_or_nan(x, m_copysign(e / (e + 2.0f), x));
}

FN float m_asinh(float x) {
    float a = m_abs(x), t = a > 1.0e9f ? 1.0f : a;
    float y = m_log1p(t * (1.0f + t / (1.0f + m_sqrt(t * t + 1.0f))));
    y = a > 1.0e9f ? m_log(a) + 0.69314718f : y;
    return m_copysign(y, x); // NaN comes through; a second test for it was miscompiled by llvmpipe
}

FN float m_acosh(float x) {
    float t = x > 1.0e9f ? 1.0f : x - 1.0f;
    float y = m_log1p(t + m_sqrt(t > 0.0f ? t * (t + 2.0f) : 0.0f));
    y = x > 1.0e9f ? m_log(x) + 0.69314718f : y;
    return x >= 1.0f && !m_isnan(x) ? y : M_NAN;
}

FN float m_atanh(float x) {
    float a = m_abs(x);
    float y = m_copysign(0.5f * m_log1p(2.0f * a / (1.0f - a)), x);
    y = a == 1.0f ? m_copysign(M_INF, x) : y;
    return a <= 1.0f && !m_isnan(x) ? y : M_NAN;
}

// ---- error function -----------------------------------------------------------------------------------------------

FN float m_erf(float x) {
    float a = m_abs(x), t = a > 4.0f ? 4.0f : a, u = t * t;
    float near =
        t * (1.1283791f +
             u * (-0.37612626f + u * (0.11283594f + u * (-0.026854211f + u * (0.0051890872f + u * (-0.00080168643f + u * 7.875875e-5f))))));
    // log(erfc) is smooth: erf = 1 - e^p
    float p = 0.026421135f + t * (-0.004759596f + t * (0.00059680565f + t * (-4.605804e-5f + t * 1.6371514e-6f)));
    p = 0.00032013806f + t * (-1.1302334f + t * (-0.63182604f + t * (-0.110080086f + t * p)));
    return m_or_nan(x, m_copysign(t > 1.0f ? 1.0f - m_exp_near(p) : near, x));
}

// x times a polynomial in w = -log(1 - x^2), or in sqrt(w) near the ends.
FN float m_erfinv_factor(float w) {
    float c = w - 2.5f;
    float p = 0.00021831298f + c * (-4.3803466e-6f + c * (-3.4547795e-6f + c * (3.422247e-7f + c * 2.2605978e-8f)));
    return 1.5014093f + c * (0.24664077f + c * (-0.0041773464f + c * (-0.0012537589f + c * p)));
}

// Far from the ends, where w < 5.
FN bool m_erfinv_is_near(float x) { return m_abs(x) < 0.9966f; }
FN float m_erfinv_near(float x) {
    float a = m_abs(x);
    return x * m_erfinv_factor(-m_log_near((1.0f - a) * (1.0f + a)));
}

FN float m_erfinv(float x) {
    float a = m_abs(x), w = -m_log_near(a < 1.0f ? (1.0f - a) * (1.0f + a) : 0.5f);
    float p = m_erfinv_factor(w), t = m_sqrt(w > 0.0f ? w : 0.0f) - 3.0f;
    float q = 0.0057511157f + t * (-0.00365071f + t * (0.0013203662f + t * (7.973404e-5f + t * -0.00017628593f)));
    q = 2.832977f + t * (1.0016747f + t * (0.00943725f + t * (-0.0076293657f + t * q)));
    float y = x * (w < 5.0f ? p : q);
    y = a == 1.0f ? m_copysign(M_INF, x) : y;
    return a <= 1.0f && !m_isnan(x) ? y : M_NAN;
}

// ---- division with remainder --------------------------------------------------------------------------------------

// Integers: floored quotient and remainder, 0 for a divisor of 0.
FN int m_divide_int(int a, int b) {
    uint divisor = m_magnitude(b) | UINT(b == 0);
    uint q = b == 0 ? 0u : m_magnitude(a) / divisor;
    if ((a < 0) == (b < 0)) return INT(q);
    return INT(0u - q - UINT(m_magnitude(a) % divisor != 0u && b != 0));
}

FN int m_remainder_int(int a, int b) {
    uint r = b == 0 ? 0u : m_magnitude(a) % (m_magnitude(b) | UINT(b == 0));
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
