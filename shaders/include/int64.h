// 64-bit integers in GLSL and C: casts of one spelling, and the high half of a product.

#ifndef VKMX_WIDE_H
#define VKMX_WIDE_H
#include "math.h"

#ifdef GL_core_profile
#define U64(x) uint64_t(x)
#define I64(x) int64_t(x)
#else
#define U64(x) ((uint64_t)(x))
#define I64(x) ((int64_t)(x))
#endif

FN uint mul_high(uint a, uint b) { return UINT((U64(a) * U64(b)) >> 32); }

#endif
