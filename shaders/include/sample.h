// Arithmetic of kernel `sample` that GLSL and C share. Probability masses are integers, so their sums do not depend on
// the order. Both executors choose the same token (except for the last bit of exp).
//
// The weight exp((l - max) / T) of a token is at most 1 and becomes a mass of 41 fraction bits. 2^19 of them sum up in
// 64 bits, and what the fraction cuts off is 2^-22 of the whole at most.

#ifndef VKMX_SAMPLE_H
#define VKMX_SAMPLE_H
#include "combine.h"
#include "math/int64.h"

// The mass of a weight in 0..1: floor(weight * 2^41). Not every GPU has doubles; the limbs are exact.
#ifdef GL_core_profile
uint64_t mass_of(float weight) {
    float a = weight * 8192.0;
    uint high = uint(a);
    float b = (a - float(high)) * 16384.0;
    uint middle = uint(b);
    uint low = uint((b - float(middle)) * 16384.0);
    return (U64(high) << 28) + (U64(middle) << 14) + U64(low);
}
#else
FN uint64_t mass_of(float weight) { return (uint64_t)(int64_t)((double)weight * 0x1p41); }
#endif

// floor(total * fraction) for a fraction in 0..1 (1 excluded).
FN uint64_t mass_fraction(uint64_t total, float fraction) {
    uint64_t f = U64(UINT(fraction * 4294967296.0f));
    return (total >> 32) * f + (((total & U64(0xffffffffu)) * f) >> 32);
}

// Finite, so that the maximum weighs 1 at any temperature above 0.
FN float inverse_temperature(float temperature) { return temperature > 1e-30f ? 1.0f / temperature : 1e30f; }

FN float token_weight(float logit, float most, float inverse) { return m_exp((logit - most) * inverse); }

// Linear bins of the distance from the maximum, as a rule eight to 1, the last one open: bin 0 holds the largest logits.
#define SAMPLE_BINS 256
#define SAMPLE_STEPS 8.0f
// Parts of a row whose largest logits a workgroup of a GPU compares at most. SAMPLE_CLEARED is the words of a row's
// scratch memory that must be zero beforehand (sample.glsl).
#define SAMPLE_PARTS 768
#define SAMPLE_CLEARED (5 * SAMPLE_BINS + 2)

// Places of the settings of a row, which are floats.
#define TEMPERATURE_AT 0
#define TOP_P_AT 1
#define MIN_P_AT 2
#define TOP_K_AT 3

// The id that is no token.
#define NO_TOKEN 0xffffffffu

FN uint distance_bin(float logit, float most, float steps) {
    float d = (most - logit) * steps;
    return UINT(d < 255.0f ? d : 255.0f);
}

// Key of the smallest logit that min_p keeps: max + ln(min_p), the maximum itself at most.
FN uint min_p_key(float most, float min_p) { return ordered_key(BITS(m_minimum(most, most + m_log(min_p))), DTYPE_F32); }

#endif
