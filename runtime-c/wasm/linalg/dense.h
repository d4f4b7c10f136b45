// Dense matrices of doubles, row-major, for the factorizations: loads and stores of elements, products and substitution.
//
// Factorizations compute in float64 whatever their dtype: float32 input gets results that are exact to its rounding.

#ifndef VKMX_WASM_DENSE_H
#define VKMX_WASM_DENSE_H

#include <wasm_simd128.h>

#include "kernel.h"

#define EPSILON 2.220446049250313e-16
// Vectors whose squares add up to less count as 0 beside a matrix of size 1: the squares would lose digits.
#define MIN_SQUARE 1e-280
#define NOT_A_NUMBER __builtin_nan("")

static inline double absolute(double x) { return __builtin_fabs(x); }
static inline double root(double x) { return __builtin_sqrt(x); }
static inline double larger(double a, double b) { return a > b ? a : b; }
static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// The root of a² + b², which neither overflows nor loses small numbers.
static inline double hypotenuse(double a, double b) {
    double x = absolute(a), y = absolute(b), most = larger(x, y), ratio = x < y ? x / y : y / x;
    return most == 0 ? 0 : most * root(1 + ratio * ratio);
}

// The rounding of a dtype.
static inline double dtype_epsilon(uint32_t dtype) { return dtype == DTYPE_F32 ? 1.1920928955078125e-7 : EPSILON; }

// n elements from element `first` on as doubles, and back.
static inline void load_doubles(double *to, const uint8_t *from, size_t first, size_t n, uint32_t dtype) {
    if (dtype != DTYPE_F32) __builtin_memcpy(to, (const double *)from + first, n * sizeof(double));
    else
        for (size_t i = 0; i < n; i++) to[i] = ((const float *)from)[first + i];
}

static inline void store_doubles(uint8_t *to, size_t first, const double *from, size_t n, uint32_t dtype) {
    if (dtype != DTYPE_F32) __builtin_memcpy((double *)to + first, from, n * sizeof(double));
    else
        for (size_t i = 0; i < n; i++) ((float *)to)[first + i] = (float)from[i];
}

static inline void fill(double *a, size_t n, double value) {
    for (size_t i = 0; i < n; i++) a[i] = value;
}

static inline void set_identity(double *a, size_t n) {
    fill(a, n * n, 0);
    for (size_t i = 0; i < n; i++) a[i * n + i] = 1;
}

// to (cols, rows) = from (rows, cols) transposed, in squares that stay in the cache.
static inline void transpose(double *to, const double *from, size_t rows, size_t cols) {
    for (size_t i0 = 0; i0 < rows; i0 += 16)
        for (size_t j0 = 0; j0 < cols; j0 += 16)
            for (size_t i = i0; i < smaller(i0 + 16, rows); i++)
                for (size_t j = j0; j < smaller(j0 + 16, cols); j++) to[j * rows + i] = from[i * cols + j];
}

// y += a x
static inline void axpy(double *y, double a, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

static inline double dot(const double *x, const double *y, size_t n) {
    v128_t sums[4] = {wasm_f64x2_splat(0), wasm_f64x2_splat(0), wasm_f64x2_splat(0), wasm_f64x2_splat(0)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 4; k++)
            sums[k] = wasm_f64x2_relaxed_madd(wasm_v128_load(x + i + 2 * k), wasm_v128_load(y + i + 2 * k), sums[k]);
    v128_t all = wasm_f64x2_add(wasm_f64x2_add(sums[0], sums[1]), wasm_f64x2_add(sums[2], sums[3]));
    double sum = wasm_f64x2_extract_lane(all, 0) + wasm_f64x2_extract_lane(all, 1);
    for (; i < n; i++) sum += x[i] * y[i];
    return sum;
}

// Rows x and y turned: x' = c x + s y, y' = c y - s x.
static inline void rotate(double *x, double *y, double c, double s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double a = x[i], b = y[i];
        x[i] = c * a + s * b;
        y[i] = c * b - s * a;
    }
}

static inline void exchange_rows(double *x, double *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double a = x[i];
        x[i] = y[i];
        y[i] = a;
    }
}

// Divides n numbers by the power of two that brings the largest into [1, 2). This rounds only subnormal numbers.
// Returns the power, 1 for zeros, NaN if a number is not finite.
double normalise(double *a, size_t n);

// c (m, n) -= a (m, k) b (k, n). Rows of b and c are contiguous; element (i, j) of a is a[i * row + j * column].
void subtract_product(size_t m, size_t n, size_t k, const double *a, size_t row, size_t column, const double *b, size_t b_row, double *c,
                      size_t c_row);

// x (n, cols) = the solution of t x = x with a triangular matrix t, whose rows have `row` elements. Only that triangle
// is read, without its diagonal when `unit`.
void solve_lower(const double *t, size_t row, bool unit, double *x, size_t n, size_t cols);
void solve_upper(const double *t, size_t row, double *x, size_t n, size_t cols);

// A Householder reflector I - tau v vᵀ with v[0] = 1 that turns x into (beta, 0, …): v replaces x, beta is returned. As
// in LAPACK, beta has the other sign than x[0]. A vector that has that form already, or is 0 beside the matrix, is left
// alone (tau 0).
double reflector(double *x, size_t n, double *tau);

// a (rows, n) (I - tau v vᵀ), row by row.
static inline void reflect_rows(double *a, size_t row, size_t rows, const double *v, size_t n, double tau) {
    if (tau == 0) return;
    for (size_t i = 0; i < rows; i++) axpy(a + i * row, -tau * dot(a + i * row, v, n), v, n);
}

#endif
