// Dense matrices of complex numbers of doubles, row-major, for the factorizations of complex64 and for eigenvectors.

#ifndef VKMX_WASM_DENSE_COMPLEX_H
#define VKMX_WASM_DENSE_COMPLEX_H

#include "linalg/dense.h"

typedef struct Z {
    double re, im;
} Z;

static inline Z z_of(double re, double im) { return (Z){re, im}; }
static inline Z z_conj(Z a) { return (Z){a.re, -a.im}; }
static inline Z z_add(Z a, Z b) { return (Z){a.re + b.re, a.im + b.im}; }
static inline Z z_sub(Z a, Z b) { return (Z){a.re - b.re, a.im - b.im}; }
static inline Z z_scale(Z a, double b) { return (Z){a.re * b, a.im * b}; }
static inline Z z_mul(Z a, Z b) { return (Z){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

static inline double z_abs(Z a) { return hypotenuse(a.re, a.im); }

// The sum of the magnitudes of both parts: as good for comparisons as |a|.
static inline double z_size(Z a) { return absolute(a.re) + absolute(a.im); }

// Smith's method.
static inline Z z_div(Z a, Z b) {
    if (absolute(b.re) >= absolute(b.im)) {
        double r = b.im / b.re, d = b.re + b.im * r;
        return (Z){(a.re + a.im * r) / d, (a.im - a.re * r) / d};
    }
    double r = b.re / b.im, d = b.re * r + b.im;
    return (Z){(a.re * r + a.im) / d, (a.im * r - a.re) / d};
}

// The root with a real part that is not negative.
static inline Z z_root(Z a) {
    double size = z_abs(a);
    if (size == 0) return a;
    double most = root((absolute(a.re) + size) / 2), other = a.im / (2 * most);
    return a.re >= 0 ? (Z){most, other} : (Z){absolute(other), __builtin_copysign(most, a.im)};
}

// Sum of x[i] y[i], without conjugates.
static inline Z z_dot(const Z *x, const Z *y, size_t n) {
    Z sum = {0, 0};
    for (size_t i = 0; i < n; i++) sum = z_add(sum, z_mul(x[i], y[i]));
    return sum;
}

// Sum of conj(x[i]) y[i].
static inline Z z_inner(const Z *x, const Z *y, size_t n) {
    Z sum = {0, 0};
    for (size_t i = 0; i < n; i++) sum = z_add(sum, z_mul(z_conj(x[i]), y[i]));
    return sum;
}

// y += a x
static inline void z_axpy(Z *y, Z a, const Z *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = z_add(y[i], z_mul(a, x[i]));
}

// y += a conj(x)
static inline void z_axpy_conj(Z *y, Z a, const Z *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = z_add(y[i], z_mul(a, z_conj(x[i])));
}

static inline void z_fill(Z *a, size_t n, double value) {
    for (size_t i = 0; i < n; i++) a[i] = z_of(value, value);
}

static inline void z_identity(Z *a, size_t n) {
    z_fill(a, n * n, 0);
    for (size_t i = 0; i < n; i++) a[i * n + i].re = 1;
}

static inline void z_from_real(Z *to, const double *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = z_of(from[i], 0);
}

static inline void z_transpose(Z *to, const Z *from, size_t rows, size_t cols, bool conjugate) {
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) to[j * rows + i] = conjugate ? z_conj(from[i * cols + j]) : from[i * cols + j];
}

// n complex64 numbers from element `first` on, and back.
static inline void z_load(Z *to, const uint8_t *from, size_t first, size_t n) {
    load_doubles((double *)to, from, 2 * first, 2 * n, DTYPE_F32);
}
static inline void z_store(uint8_t *to, size_t first, const Z *from, size_t n) {
    store_doubles(to, 2 * first, (const double *)from, 2 * n, DTYPE_F32);
}

// A reflector H = I - tau v vᴴ with v[0] = 1. Its conjugate transpose turns x into (beta, 0, …) with a real beta. v
// replaces x, beta is returned. A vector that has that form already, or is 0 beside the matrix, is left alone (tau 0).
static inline double z_reflector(Z *x, size_t n, Z *tau) {
    Z alpha = x[0];
    double rest = dot((const double *)(x + 1), (const double *)(x + 1), 2 * (n - 1));
    x[0] = z_of(1, 0);
    *tau = z_of(0, 0);
    double square = alpha.re * alpha.re + alpha.im * alpha.im + rest;
    if ((rest == 0 && alpha.im == 0) || square < MIN_SQUARE) return alpha.re;
    double beta = -__builtin_copysign(root(square), alpha.re);
    *tau = z_of((beta - alpha.re) / beta, -alpha.im / beta);
    Z scale = z_div(z_of(1, 0), z_sub(alpha, z_of(beta, 0)));
    for (size_t i = 1; i < n; i++) x[i] = z_mul(x[i], scale);
    return beta;
}

// Rows r of a become H r, for the reflector of v and tau: rᵀ (I - tau v vᴴ)ᵀ.
static inline void z_reflect_rows(Z *a, size_t row, size_t rows, const Z *v, size_t n, Z tau) {
    if (tau.re == 0 && tau.im == 0) return;
    for (size_t i = 0; i < rows; i++) {
        Z by = z_mul(tau, z_inner(v, a + i * row, n));
        z_axpy(a + i * row, z_scale(by, -1), v, n);
    }
}

// a becomes a H, row by row.
static inline void z_reflect_right(Z *a, size_t row, size_t rows, const Z *v, size_t n, Z tau) {
    if (tau.re == 0 && tau.im == 0) return;
    for (size_t i = 0; i < rows; i++) {
        Z by = z_mul(tau, z_dot(a + i * row, v, n));
        z_axpy_conj(a + i * row, z_scale(by, -1), v, n);
    }
}

// a (rows, cols) becomes Hᴴ a; sums is room for a row.
static inline void z_reflect_left(Z *a, size_t row, size_t rows, size_t cols, const Z *v, Z tau, Z *sums) {
    if (tau.re == 0 && tau.im == 0) return;
    z_fill(sums, cols, 0);
    for (size_t i = 0; i < rows; i++) z_axpy(sums, z_conj(v[i]), a + i * row, cols);
    for (size_t i = 0; i < rows; i++) z_axpy(a + i * row, z_scale(z_mul(z_conj(tau), v[i]), -1), sums, cols);
}

#endif
