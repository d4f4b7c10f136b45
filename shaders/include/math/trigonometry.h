// Sine, cosine, tangent and their inverses, as math.h has its functions. Range reductions hold for |x| up to 2^24; slow_path.h has those beyond.

#ifndef VKMX_TRIGONOMETRY_H
#define VKMX_TRIGONOMETRY_H

#include "numbers.h"

// x = (many + few) pi/2 + rest, |rest| <= pi/4: many is a multiple of 4096 and few at most 2049 for |x| <= 2^24. pi/2
// comes in parts of 12 bits, so products with either part are exact. So is the remainder of x until it is small.
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
FN bool m_sin_is_fast(float x) { return m_abs(x) <= 3000.0f; }
FN float m_fast_rest(float x, float few) {
    PRECISE float r = m_quarters_begin(x, few);
    r = r - few * 7.549533620476723e-8f;
    r = r - few * 2.5579538487363607e-12f;
    return r - few * 5.390302858158119e-15f;
}

FN float m_sin_fast(float x) {
    float few = m_round(x * 0.636619772f), r = m_fast_rest(x, few);
    uint quadrant = UINT(m_small_int(few));
    float y = (quadrant & 1u) != 0u ? m_cos_unit(r) : m_sin_unit(r);
    return m_nonzero(x) ? FROM_BITS(BITS(y) ^ (quadrant & 2u) << 30) : x; // -0 stays
}

FN float m_cos_fast(float x) {
    float few = m_round(x * 0.636619772f), r = m_fast_rest(x, few);
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

#endif
