// Steps of softmax and logsumexp on a run of a row.

#ifndef VKMX_WASM_EXPONENTIAL_H
#define VKMX_WASM_EXPONENTIAL_H

#include "../../shaders/include/math/math.h"
#include "simd.h"

INLINE float sum_floats(const float *run, size_t n) {
    f4 a = f4_splat(0), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a += f4_load(run + i), b += f4_load(run + i + 4);
        c += f4_load(run + i + 8), d += f4_load(run + i + 12);
    }
    float sum = f4_sum((a + b) + (c + d));
    for (; i < n; i++) sum += run[i];
    return sum;
}

// y[i] = exp(x[i] - most); gives their sum.
static inline float sum_exponentials(float *y, const float *x, size_t n, float most) {
    uint32_t slow = 0;
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] - most;
        slow |= !m_exp_is_fast(y[i]);
    }
    if (slow) {
#pragma clang loop interleave_count(2)
        for (size_t i = 0; i < n; i++) y[i] = m_exp(y[i]);
    } else {
#pragma clang loop interleave_count(2)
        for (size_t i = 0; i < n; i++) y[i] = m_exp_fast(y[i]);
    }
    return sum_floats(y, n);
}

#endif
