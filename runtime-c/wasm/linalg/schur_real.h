// The real Schur form of a real matrix. Reflectors make a Hessenberg matrix. QR steps with two shifts at once (Francis)
// follow, each a chase of reflectors of three rows. See Golub and Van Loan, Matrix Computations, §7.5.

#ifndef VKMX_WASM_SCHUR_REAL_H
#define VKMX_WASM_SCHUR_REAL_H

#include "linalg/dense_complex.h"

// Steps after which an eigenvalue is given up; every tenth has shifts of another kind, for matrices that a step only permutes.
enum { MAX_SCHUR_STEPS = 90, UNUSUAL_STEP = 10 };

// Whether an element beside two diagonal ones counts as 0; the matrix has elements about 1.
static inline bool negligible(double beside, double diagonals) {
    return beside <= EPSILON * (diagonals == 0 ? 1 : larger(diagonals, 1e-130));
}

// h becomes Pᵀ h P without elements below the second diagonal, z = P. v is room for n numbers.
static void hessenberg_real(double *h, size_t n, double *z, double *v) {
    if (z) set_identity(z, n);
    for (size_t k = 0; k + 2 < n; k++) {
        size_t first = k + 1, left = n - first;
        double tau;
        for (size_t i = 0; i < left; i++) v[i] = h[(first + i) * n + k];
        double beta = reflector(v, left, &tau);
        if (tau == 0) continue;
        for (size_t j = first; j < n; j++) {
            double sum = 0;
            for (size_t i = 0; i < left; i++) sum += v[i] * h[(first + i) * n + j];
            for (size_t i = 0; i < left; i++) h[(first + i) * n + j] -= tau * sum * v[i];
        }
        h[first * n + k] = beta;
        for (size_t i = 1; i < left; i++) h[(first + i) * n + k] = 0;
        reflect_rows(h + first, n, n, v, left, tau);
        if (z) reflect_rows(z + first, n, n, v, left, tau);
    }
}

// Columns i and i + 1 of rows from..to - 1 turned as `rotate` turns rows.
static void rotate_columns(double *a, size_t n, size_t from, size_t to, size_t i, double c, double s) {
    for (size_t k = from; k < to; k++) rotate(a + k * n + i, a + k * n + i + 1, c, s, 1);
}

// The values of rows k and k + 1, which are a block of their own. A block with real values becomes triangular.
static void split_pair(double *h, size_t n, size_t k, bool whole, double *z, Z *values) {
    double *upper = h + k * n + k, *lower = upper + n, a = upper[0], b = upper[1], c = lower[0], d = lower[1];
    double most = larger(larger(absolute(a - d) / 2, absolute(b)), absolute(c)), half = (a - d) / 2 / most;
    double inside = half * half + (b / most) * (c / most), spread = root(absolute(inside)) * most;
    if (inside < 0) {
        values[k] = z_of(d + (a - d) / 2, spread);
        values[k + 1] = z_conj(values[k]);
        return;
    }
    double far = (a - d) / 2 + __builtin_copysign(spread, half), r = root(far * far + c * c), cs = far / r, sn = c / r;
    size_t from = whole ? 0 : k, to = whole ? n : k + 2;
    rotate(h + k * n + k, h + (k + 1) * n + k, cs, sn, to - k);
    rotate_columns(h, n, from, k + 2, k, cs, sn);
    if (z) rotate_columns(z, n, 0, n, k, cs, sn);
    upper[0] = d + far;
    lower[1] = far == 0 ? d : d - b * (c / far);
    lower[0] = 0;
    values[k] = z_of(upper[0], 0);
    values[k + 1] = z_of(lower[1], 0);
}

// One step on rows l..last, at least three of them.
static void francis_step(double *h, size_t n, size_t l, size_t last, bool unusual, bool whole, double *z) {
    const double *end = h + last * n + last, *before = end - n;
    double sum = end[0] + before[-1], product = end[0] * before[-1] - end[-1] * before[0];
    if (unusual) {
        double size = absolute(end[-1]) + absolute(before[-2]);
        sum = 1.5 * size;
        product = size * size;
    }
    const double *top = h + l * n + l, *second = top + n;
    double v[3] = {(top[0] * (top[0] - sum) + product) / second[0] + top[1], top[0] + second[1] - sum, second[n + 1]};
    size_t from = whole ? 0 : l, to = whole ? n : last + 1;
    for (size_t k = l; k < last; k++) {
        size_t height = smaller(3, last + 1 - k), left = k > l ? k - 1 : l;
        if (k > l)
            for (size_t i = 0; i < height; i++) v[i] = h[(k + i) * n + k - 1];
        // The reflector is the same for a multiple of its vector, whose squares are there.
        double most = 0, tau;
        for (size_t i = 0; i < height; i++) most = larger(most, absolute(v[i]));
        if (most == 0) continue;
        for (size_t i = 0; i < height; i++) v[i] /= most;
        double beta = reflector(v, height, &tau) * most;
        for (size_t j = left; j < to; j++) {
            double by = 0;
            for (size_t i = 0; i < height; i++) by += v[i] * h[(k + i) * n + j];
            for (size_t i = 0; i < height; i++) h[(k + i) * n + j] -= tau * by * v[i];
        }
        if (k > l) {
            h[k * n + k - 1] = beta;
            for (size_t i = 1; i < height; i++) h[(k + i) * n + k - 1] = 0;
        }
        reflect_rows(h + from * n + k, n, smaller(k + 4, last + 1) - from, v, height, tau);
        if (z) reflect_rows(z + k, n, n, v, height, tau);
    }
}

// h becomes its Schur form, or with no z only its diagonal blocks are right; columns of z are turned along. v is room for n numbers.
// Whether it converged.
static bool schur_real(double *h, size_t n, double *z, Z *values, double *v) {
    hessenberg_real(h, n, z, v);
    size_t steps = 0;
    for (size_t count = n; count > 0;) {
        size_t last = count - 1, l = last;
        for (; l > 0; l--) {
            const double *at = h + l * n + l;
            if (negligible(absolute(at[-1]), absolute(at[0]) + absolute(at[-(ptrdiff_t)n - 1]))) break;
        }
        if (l > 0) h[l * n + l - 1] = 0;
        if (last - l < 2) {
            if (l == last) values[last] = z_of(h[last * n + last], 0);
            else split_pair(h, n, l, z != NULL, z, values);
            count = l;
            steps = 0;
            continue;
        }
        if (++steps > MAX_SCHUR_STEPS) return false;
        francis_step(h, n, l, last, steps % UNUSUAL_STEP == 0, z != NULL, z);
    }
    return true;
}

#endif
