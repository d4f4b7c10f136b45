// Normal numbers from random words, for GLSL and C: what random.normal is in primitives, number by number.

#ifndef VKMX_NORMAL_H
#define VKMX_NORMAL_H
#include "math.h"

// Uniform in (-1, 1).
FN float normal_uniform(uint word) {
    const float below_one = 0.99999994f;
    float unit = m_from_uint(word) * 2.3283064365386963e-10f; // 2^-32
    unit = unit < below_one ? unit : below_one;
    return unit * (1.0f + below_one) - below_one;
}

FN float normal_number(uint word) { return m_erfinv(normal_uniform(word)) * 1.41421356f; }

#endif
