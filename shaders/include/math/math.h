// Mathematics of both executors: exponentials, logarithms, powers, hyperbolic and error functions; trigonometry.h has angles, numbers.h what
// all of them stand on.
//
// The functions are branch-free polynomials (selects instead of jumps), which C compilers turn into SIMD loops; errors
// are a few units in the last place. Infinities, NaN and zeros give what C's math library gives.

#ifndef VKMX_MATH_H
#define VKMX_MATH_H

#include "numbers.h"
#include "trigonometry.h"

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
FN bool m_exp_is_fast(float x) { return m_abs(x) <= 87.0f; }
#ifdef GL_core_profile
float m_exp_fast(float x) { return m_exp(x); } // in fused decoding lavapipe gets the short form of erf wrong
#else
FN float m_exp_fast(float x) {
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
FN float m_expm1_fast(float x) {
    float n = m_round(x * 1.44269504f);
    float r = m_ln2_rest(x, n), scale = m_pow2i(m_small_int(n));
    return scale * (r + r * r * m_exp_tail(r)) + (scale - 1.0f);
}

FN float m_expm1(float x) {
    float y = m_expm1_fast(x > 30.0f ? 30.0f : (x < -30.0f ? -30.0f : x));
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
FN bool m_log_is_fast(float x) { return BITS(x) - 0x00800000u < 0x7f000000u; }
FN float m_log_fast(float x) {
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
    PRECISE float lost = x - (u - 1.0f); // the part that the sum rounded away
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
FN bool m_pow_is_fast(float a, float b) { return (UINT(m_log_is_fast(a)) & UINT(m_abs(b - m_trunc(b)) > 0.0f)) != 0u; }
FN float m_pow_fast(float a, float b) {
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

// ---- hyperbolic functions -----------------------------------------------------------------------------------------

FN float m_sinh(float x) {
    float a = m_abs(x), e = m_expm1_fast(a > 20.0f ? 20.0f : a), h = m_exp(0.5f * a);
    float y = a > 20.0f ? 0.5f * h * h : 0.5f * (e + e / (e + 1.0f));
    return m_isnan(x) ? M_NAN : m_copysign(y, x);
}

FN float m_cosh(float x) {
    float a = m_abs(x), e = m_exp(a), h = m_exp(0.5f * a);
    float y = a > 20.0f ? 0.5f * h * h : 0.5f * (e + 1.0f / e);
    return m_isnan(x) ? x : y;
}

FN float m_tanh(float x) {
    float a = m_abs(x), e = m_expm1_fast(a > 10.0f ? 20.0f : 2.0f * a);
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
    float fast =
        t * (1.1283791f +
             u * (-0.37612626f + u * (0.11283594f + u * (-0.026854211f + u * (0.0051890872f + u * (-0.00080168643f + u * 7.875875e-5f))))));
    // log(erfc) is smooth: erf = 1 - e^p
    float p = 0.026421135f + t * (-0.004759596f + t * (0.00059680565f + t * (-4.605804e-5f + t * 1.6371514e-6f)));
    p = 0.00032013806f + t * (-1.1302334f + t * (-0.63182604f + t * (-0.110080086f + t * p)));
    return m_or_nan(x, m_copysign(t > 1.0f ? 1.0f - m_exp_fast(p) : fast, x));
}

// x times a polynomial in w = -log(1 - x^2), or in sqrt(w) near the ends.
FN float m_erfinv_factor(float w) {
    float c = w - 2.5f;
    float p = 0.00021831298f + c * (-4.3803466e-6f + c * (-3.4547795e-6f + c * (3.422247e-7f + c * 2.2605978e-8f)));
    return 1.5014093f + c * (0.24664077f + c * (-0.0041773464f + c * (-0.0012537589f + c * p)));
}

// Far from the ends, where w < 5.
FN bool m_erfinv_is_fast(float x) { return m_abs(x) < 0.9966f; }
FN float m_erfinv_fast(float x) {
    float a = m_abs(x);
    return x * m_erfinv_factor(-m_log_fast((1.0f - a) * (1.0f + a)));
}

FN float m_erfinv(float x) {
    float a = m_abs(x), w = -m_log_fast(a < 1.0f ? (1.0f - a) * (1.0f + a) : 0.5f);
    float p = m_erfinv_factor(w), t = m_sqrt(w > 0.0f ? w : 0.0f) - 3.0f;
    float q = 0.0057511157f + t * (-0.00365071f + t * (0.0013203662f + t * (7.973404e-5f + t * -0.00017628593f)));
    q = 2.832977f + t * (1.0016747f + t * (0.00943725f + t * (-0.0076293657f + t * q)));
    float y = x * (w < 5.0f ? p : q);
    y = a == 1.0f ? m_copysign(M_INF, x) : y;
    return a <= 1.0f && !m_isnan(x) ? y : M_NAN;
}

#endif
