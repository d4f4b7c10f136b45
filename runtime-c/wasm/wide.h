// Elements of 8-byte dtypes in C: loads that cast to int64, uint64, float64 or complex numbers, and stores that cast back.
// See shaders/include/wide.glsl.

#ifndef VKMX_WASM_WIDE_H
#define VKMX_WASM_WIDE_H
#include "../../shaders/include/math/complex.h"
#include "../../shaders/include/math/int64.h"
#include "kernel.h"

double d_exp(double), d_expm1(double), d_log(double), d_log2(double), d_log10(double), d_log1p(double), d_sin(double), d_cos(double);
double d_tan(double), d_asin(double), d_acos(double), d_atan(double), d_atan2(double, double), d_sinh(double), d_cosh(double);
double d_tanh(double), d_asinh(double), d_acosh(double), d_atanh(double), d_pow(double, double), d_fmod(double, double);
double d_erf(double), d_erfinv(double);

static inline double d_inf(void) { return __builtin_inf(); }
static inline double d_abs(double x) { return __builtin_fabs(x); }
static inline double d_sqrt(double x) { return __builtin_sqrt(x); }
static inline double d_floor(double x) { return __builtin_floor(x); }
static inline double d_ceil(double x) { return __builtin_ceil(x); }
static inline double d_trunc(double x) { return __builtin_trunc(x); }
static inline double d_round(double x) { return __builtin_rint(x); }
static inline double d_remainder(double a, double b) {
    const double r = d_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline double d_logaddexp(double a, double b) {
    if (a != a || b != b) return a + b;
    const double most = a > b ? a : b, least = a > b ? b : a;
    return most - least == d_inf() || most == least - 0 * most ? most + (most == least ? 0.69314718055994531 : 0)
                                                               : most + d_log1p(d_exp(least - most));
}

static inline int64_t double_to_long(double x) { return __builtin_wasm_trunc_saturate_s_i64_f64(x); }
static inline uint64_t double_to_ulong(double x) { return __builtin_wasm_trunc_saturate_u_i64_f64(x); }

static inline double load_double(const uint8_t *a, uint32_t dtype) {
    switch (dtype) {
        case DTYPE_F64: return *(const double *)a;
        case DTYPE_C64: return *(const float *)a;
        case DTYPE_I64: return (double)*(const int64_t *)a;
        case DTYPE_U64: return (double)*(const uint64_t *)a;
    }
    const uint32_t bits = load_bits(a, 0, dtype);
    return DTYPE_IS_FLOAT(dtype) ? bits_float(bits) : DTYPE_IS_SIGNED(dtype) ? (double)(int32_t)bits : bits;
}

static inline int64_t load_long(const uint8_t *a, uint32_t dtype) {
    if (dtype == DTYPE_I64 || dtype == DTYPE_U64) return *(const int64_t *)a;
    if (DTYPE_IS_WIDE(dtype) || DTYPE_IS_FLOAT(dtype)) return double_to_long(load_double(a, dtype));
    const uint32_t bits = load_bits(a, 0, dtype);
    return DTYPE_IS_SIGNED(dtype) ? (int32_t)bits : (int64_t)bits;
}

static inline uint64_t load_ulong(const uint8_t *a, uint32_t dtype) {
    if (dtype == DTYPE_F64 || dtype == DTYPE_C64 || DTYPE_IS_FLOAT(dtype)) return double_to_ulong(load_double(a, dtype));
    return (uint64_t)load_long(a, dtype);
}

static inline Complex load_complex(const uint8_t *a, uint32_t dtype) {
    return dtype == DTYPE_C64 ? *(const Complex *)a : CX((float)load_double(a, dtype), 0);
}

static inline void store_double(uint8_t *a, size_t i, uint32_t dtype, double x) {
    switch (dtype) {
        case DTYPE_F64: ((double *)a)[i] = x; return;
        case DTYPE_C64: ((Complex *)a)[i] = CX((float)x, 0); return;
        case DTYPE_I64: ((int64_t *)a)[i] = double_to_long(x); return;
        case DTYPE_U64: ((uint64_t *)a)[i] = double_to_ulong(x); return;
        case DTYPE_BOOL: a[i] = x != 0; return;
    }
    if (DTYPE_IS_FLOAT(dtype)) store_float(a, i, dtype, (float)x);
    else
        store_bits(a, i, dtype,
                   DTYPE_IS_SIGNED(dtype) ? (uint32_t)__builtin_wasm_trunc_saturate_s_i32_f64(x)
                                          : __builtin_wasm_trunc_saturate_u_i32_f64(x));
}

static inline void store_complex(uint8_t *a, size_t i, uint32_t dtype, Complex x) {
    if (dtype == DTYPE_C64) ((Complex *)a)[i] = x;
    else if (dtype == DTYPE_BOOL) a[i] = c_nonzero(x);
    else store_double(a, i, dtype, x.re);
}

static inline void store_ulong(uint8_t *a, size_t i, uint32_t dtype, uint64_t x) {
    if (dtype == DTYPE_I64 || dtype == DTYPE_U64) ((uint64_t *)a)[i] = x;
    else if (DTYPE_IS_WIDE(dtype)) store_double(a, i, dtype, (double)x);
    else if (dtype == DTYPE_BOOL) a[i] = x != 0;
    else if (DTYPE_IS_FLOAT(dtype)) store_float(a, i, dtype, (float)x);
    else store_bits(a, i, dtype, (uint32_t)x);
}

static inline void store_long(uint8_t *a, size_t i, uint32_t dtype, int64_t x) {
    if (dtype == DTYPE_F64 || dtype == DTYPE_C64) store_double(a, i, dtype, (double)x);
    else if (DTYPE_IS_FLOAT(dtype)) store_float(a, i, dtype, (float)x);
    else store_ulong(a, i, dtype, (uint64_t)x);
}

#endif
