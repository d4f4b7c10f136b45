// Sine, cosine and tangent of numbers beyond 2^24, whose neighbours are 2 and more apart.
//
// Such a number is m * 2^e with a whole m of 24 bits, so only the bits of 1 / 2pi from the e-th on matter. The bits
// before the e-th give whole turns. 96 of them times m, of which the upper 64 are kept, are the fraction of a turn to
// 2^-64. No float32 lies nearer to a multiple of pi/2 than 2^-34 turns (Payne and Hanek's reduction). One definition
// for GLSL and C.

#ifndef VKMX_SLOW_PATH_H
#define VKMX_SLOW_PATH_H
#include "include/math/int64.h"

FN bool m_is_slow(float x) { return (BITS(x) & 0x7fffffffu) - 0x4b800001u < 0x7f800000u - 0x4b800001u; }

// Word i of the fraction bits of 1 / 2pi.
FN uint slow_word(uint i) {
    uint low = i == 0u ? 0x28be60dbu : (i == 1u ? 0x9391054au : (i == 2u ? 0x7f09d5f4u : 0x7d4d3770u));
    return i < 4u ? low : (i == 4u ? 0x36d8a566u : (i == 5u ? 0x4f10e410u : 0x7f9458eau));
}

// 32 bits of 1 / 2pi from bit e on.
FN uint slow_bits(uint e) {
    uint i = e >> 5, left = e & 31u;
    return slow_word(i) << left | (slow_word(i + 1u) >> 1) >> (31u - left);
}

// x / 2pi less its whole part, in 2^-64.
FN uint64_t slow_turn(float x) {
    uint bits = BITS(x), m = (bits & 0x007fffffu) | 0x00800000u, e = (bits >> 23 & 0xffu) - 150u;
    uint64_t low = U64(m) * U64(slow_bits(e + 64u)), middle = U64(m) * U64(slow_bits(e + 32u)) + (low >> 32);
    uint64_t turn = (U64(m * slow_bits(e)) << 32) + middle;
    return bits >> 31 != 0u ? U64(0u) - turn : turn;
}

// The nearest quarter of a turn, and radians from there: -pi/4 to pi/4.
FN uint slow_quarter(uint64_t turn) { return UINT((turn + (U64(1u) << 61)) >> 62); }
FN float slow_rest(uint64_t turn) {
    return FLOAT(I64(turn - (U64(slow_quarter(turn)) << 62))) * 3.4061215e-19f; // 2pi / 2^64
}

FN float m_sin_slow(float x) {
    uint64_t turn = slow_turn(x);
    uint quarter = slow_quarter(turn);
    float r = slow_rest(turn), y = (quarter & 1u) != 0u ? m_cos_unit(r) : m_sin_unit(r);
    return (quarter & 2u) != 0u ? -y : y;
}

FN float m_cos_slow(float x) {
    uint64_t turn = slow_turn(x);
    uint quarter = slow_quarter(turn);
    float r = slow_rest(turn), y = (quarter & 1u) != 0u ? m_sin_unit(r) : m_cos_unit(r);
    return ((quarter + 1u) & 2u) != 0u ? -y : y;
}

FN float m_tan_slow(float x) {
    uint64_t turn = slow_turn(x);
    float r = slow_rest(turn), s = m_sin_unit(r), c = m_cos_unit(r);
    return (slow_quarter(turn) & 1u) != 0u ? -c / s : s / c;
}

#endif
