// Angles of rotary embedding, exact enough at any position: fixed-point turns instead of radians in float.
//
// The angle position * frequency reaches 40,960 radians and more, where float32 radians are 0.004 apart and the sin()
// and cos() of GPUs promise nothing. Here a frequency is a 32-bit mantissa and an exponent. position * mantissa is one
// 64-bit integer product, and dropping the integer bits takes the fraction of a turn: 1e-5 radians at 40,960. The rest
// lies within an eighth of a turn of its quadrant, where short polynomials serve. One definition for GLSL and C.

#ifndef VKMX_ANGLE_H
#define VKMX_ANGLE_H
#include "int64.h"

// sign * mantissa / 2^32 * 2^exponent, the mantissa's top bit set.
struct Scaled {
    uint mantissa;
    int exponent;
    uint negative;
};

#ifndef GL_core_profile
typedef struct Scaled Scaled;
#endif

FN Scaled scaled(uint mantissa, int exponent, uint negative) {
    Scaled c;
    c.mantissa = mantissa;
    c.exponent = exponent;
    c.negative = negative;
    return c;
}

// Exact for normal floats; infinity is 2^128, 0 is 2^-127.
FN Scaled scaled_float(float x) { return scaled(BITS(x) << 8 | 0x80000000u, INT(BITS(x) >> 23 & 0xffu) - 126, BITS(x) >> 31); }

FN Scaled scaled_product(Scaled a, Scaled b) {
    uint64_t product = U64(a.mantissa) * U64(b.mantissa);
    uint carry = UINT(product >> 63);
    return scaled(UINT(product >> (31u + carry)), a.exponent + b.exponent - 1 + INT(carry), a.negative ^ b.negative);
}

FN Scaled scaled_reciprocal(Scaled a) {
    uint64_t quotient = (U64(1u) << 63) / U64(a.mantissa); // 2^31 < quotient <= 2^32
    return scaled(UINT(quotient >> 32) != 0u ? 0xffffffffu : UINT(quotient), 1 - a.exponent, a.negative);
}

// base^(-2i / dims), from log2(base) >= 0. The integer part of the power of two is the exponent. The fraction r gives
// 2^-r = exp(-z) as 1 - z (1 - z/2 (1 - z/3 (…))) in 32-bit fractions, where ~x is 1 - x.
FN Scaled rope_frequency(uint i, uint dims, float log2_base) {
    Scaled l = scaled_float(log2_base);
    int right = l.exponent < -63 ? 63 : -l.exponent;
    uint64_t power = right <= 0 ? U64(l.mantissa) << -right : U64(l.mantissa) >> right;
    power = power * U64(2u * i) / U64(dims);     // 32 fraction bits
    uint z = mul_high(UINT(power), 0xb17217f8u); // ln 2
    uint e = ~mul_high(z, 0x13b13b13u);          // 1/13
    e = ~mul_high(mul_high(z, 0x15555555u), e);  // 1/12
    e = ~mul_high(mul_high(z, 0x1745d174u), e);
    e = ~mul_high(mul_high(z, 0x1999999au), e);
    e = ~mul_high(mul_high(z, 0x1c71c71cu), e);
    e = ~mul_high(mul_high(z, 0x20000000u), e);
    e = ~mul_high(mul_high(z, 0x24924925u), e);
    e = ~mul_high(mul_high(z, 0x2aaaaaabu), e);
    e = ~mul_high(mul_high(z, 0x33333333u), e);
    e = ~mul_high(mul_high(z, 0x40000000u), e);
    e = ~mul_high(mul_high(z, 0x55555555u), e);
    e = ~mul_high(mul_high(z, 0x80000000u), e); // 1/2
    e = ~mul_high(z, e);
    return scaled(e | 0x80000000u, -INT(power >> 32), 0u);
}

// Turns that one position adds.
FN Scaled turns_per_position(Scaled frequency, float scale) {
    return scaled_product(scaled_product(frequency, scaled_float(scale)), scaled(0xa2f9836eu, -2, 0u)); // 1 / (2 pi)
}

// The fraction of a turn at a position, in 2^-32 turns.
FN uint turn_at(int position, Scaled turns) {
    int64_t product = I64(position) * I64(turns.mantissa);
    int shift = turns.exponent;
    uint turn;
    if (shift >= 0) turn = shift > 31 ? 0u : UINT(product) << shift;
    else turn = UINT(product >> (shift < -63 ? 63 : -shift));
    return turns.negative != 0u ? 0u - turn : turn;
}

// Radians of a turn beyond its nearest quarter, -pi/4 to pi/4, and the quarter.
FN uint turn_quarter(uint turn) { return (turn + 0x20000000u) >> 30; }
FN float turn_rest(uint turn) { return FLOAT(INT(turn - (turn_quarter(turn) << 30))) * 1.4629180792671596e-9f; }

// As fma, so that every shader that turns something gets the same bits: a compiler may join products and sums or not.
FN float sin_fast(float x) {
    float s = x * x;
    return m_fma(x * s, m_fma(s, m_fma(s, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), x);
}

FN float cos_fast(float x) {
    float s = x * x;
    float rest = m_fma(s, m_fma(s, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f);
    return m_fma(s * s, rest, m_fma(s, -0.5f, 1.0f));
}

FN float turn_sin(uint turn) {
    uint quarter = turn_quarter(turn);
    float x = turn_rest(turn);
    float y = (quarter & 1u) != 0u ? cos_fast(x) : sin_fast(x);
    return (quarter & 2u) != 0u ? -y : y;
}

FN float turn_cos(uint turn) { return turn_sin(turn + 0x40000000u); }

#endif
