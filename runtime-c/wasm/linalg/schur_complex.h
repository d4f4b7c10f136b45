// The Schur form of a complex matrix: reflectors to a Hessenberg matrix, then QR steps with one shift, each a chase of rotations.

#ifndef VKMX_WASM_SCHUR_COMPLEX_H
#define VKMX_WASM_SCHUR_COMPLEX_H

#include "linalg/schur_real.h"

// h becomes Pᴴ h P without elements below the second diagonal, z = P. v is room for n numbers, sums for a row.
static void hessenberg_complex(Z *h, size_t n, Z *z, Z *v, Z *sums) {
    if (z) z_identity(z, n);
    for (size_t k = 0; k + 2 < n; k++) {
        size_t first = k + 1, left = n - first;
        Z tau;
        for (size_t i = 0; i < left; i++) v[i] = h[(first + i) * n + k];
        double beta = z_reflector(v, left, &tau);
        z_reflect_left(h + first * n + first, n, left, left, v, tau, sums);
        h[first * n + k] = z_of(beta, 0);
        for (size_t i = 1; i < left; i++) h[(first + i) * n + k] = z_of(0, 0);
        z_reflect_right(h + first, n, n, v, left, tau);
        if (z) z_reflect_right(z + first, n, n, v, left, tau);
    }
}

// The eigenvalue of rows k and k + 1 that is nearer to the last element.
static Z nearer_value(const Z *h, size_t n, size_t k) {
    const Z *at = h + k * n + k;
    Z half = z_scale(z_sub(at[0], at[n + 1]), 0.5), inside = z_add(z_mul(half, half), z_mul(at[1], at[n]));
    Z spread = z_root(inside);
    if (spread.re * half.re + spread.im * half.im < 0) spread = z_scale(spread, -1);
    Z far = z_add(half, spread);
    return z_size(far) == 0 ? at[n + 1] : z_sub(at[n + 1], z_div(z_mul(at[1], at[n]), far));
}

// The rotation (c, s; -conj(s), c) with a real c that turns (x, y) into (r, 0).
static void rotation_of(Z x, Z y, double *c, Z *s) {
    double size = z_abs(z_of(z_abs(x), z_abs(y))), own = z_abs(x);
    *c = size == 0 ? 1 : own / size;
    Z phase = own == 0 ? z_of(1, 0) : z_scale(x, 1 / own);
    *s = size == 0 ? z_of(0, 0) : z_scale(z_mul(phase, z_conj(y)), 1 / size);
}

// (x, y) = (c x + s y, c y - conj(s) x)
static void turn(Z *x, Z *y, double c, Z s) {
    Z a = *x, b = *y;
    *x = z_add(z_scale(a, c), z_mul(s, b));
    *y = z_sub(z_scale(b, c), z_mul(z_conj(s), a));
}

// One step on rows l..last.
static void shifted_step(Z *h, size_t n, size_t l, size_t last, Z shift, Z *z) {
    size_t from = z ? 0 : l, to = z ? n : last + 1;
    Z x = z_sub(h[l * n + l], shift), y = h[(l + 1) * n + l], s;
    double c;
    for (size_t k = l; k < last; k++) {
        if (k > l) {
            x = h[k * n + k - 1];
            y = h[(k + 1) * n + k - 1];
        }
        rotation_of(x, y, &c, &s);
        for (size_t j = k > l ? k - 1 : l; j < to; j++) turn(h + k * n + j, h + (k + 1) * n + j, c, s);
        if (k > l) h[(k + 1) * n + k - 1] = z_of(0, 0);
        for (size_t i = from; i < smaller(k + 3, last + 1); i++) turn(h + i * n + k, h + i * n + k + 1, c, z_conj(s));
        if (z)
            for (size_t i = 0; i < n; i++) turn(z + i * n + k, z + i * n + k + 1, c, z_conj(s));
    }
}

// h becomes its Schur form, or with no z only its diagonal is right; columns of z are turned along. `values` and v are room for n
// numbers each. Whether it converged.
static bool schur_complex(Z *h, size_t n, Z *z, Z *values, Z *v) {
    hessenberg_complex(h, n, z, v, values);
    size_t steps = 0;
    for (size_t count = n; count > 0;) {
        size_t last = count - 1, l = last;
        for (; l > 0; l--) {
            const Z *at = h + l * n + l;
            if (negligible(z_size(at[-1]), z_size(at[0]) + z_size(at[-(ptrdiff_t)n - 1]))) break;
        }
        if (l > 0) h[l * n + l - 1] = z_of(0, 0);
        if (l == last) {
            values[last] = h[last * n + last];
            count--;
            steps = 0;
            continue;
        }
        if (++steps > MAX_SCHUR_STEPS) return false;
        Z shift = nearer_value(h, n, last - 1);
        if (steps % UNUSUAL_STEP == 0) shift = z_add(h[last * n + last], z_of(0.75 * z_size(h[last * n + last - 1]), 0));
        shifted_step(h, n, l, last, shift, z);
    }
    return true;
}

#endif
