// Kernel qr: Householder reflectors in blocks of BLOCK columns, applied as I - V T Vᵀ (compact WY form).

#include "linalg/dense.h"

enum { BLOCK = 32 };

// The reflectors of columns first..end of a (m, n), and what they make of those columns. v (m - first, width) gets the vectors, with
// zeros above their ones; t (BLOCK, BLOCK) the triangular factor of their product.
static void factor_panel(double *a, size_t m, size_t n, size_t first, size_t end, double *v, double *t, double *column) {
    size_t width = end - first;
    double taus[BLOCK], sums[BLOCK];
    fill(v, (m - first) * width, 0);
    for (size_t j = first; j < end; j++) {
        for (size_t i = j; i < m; i++) column[i - j] = a[i * n + j];
        double beta = reflector(column, m - j, &taus[j - first]), tau = taus[j - first];
        for (size_t i = j; i < m; i++) v[(i - first) * width + j - first] = column[i - j], a[i * n + j] = 0;
        a[j * n + j] = beta;
        size_t rest = end - j - 1;
        fill(sums, rest, 0);
        for (size_t i = j; i < m; i++) axpy(sums, column[i - j], a + i * n + j + 1, rest);
        for (size_t i = j; i < m; i++) axpy(a + i * n + j + 1, -tau * column[i - j], sums, rest);
    }
    // Column j of T is -tau_j T (Vᵀ v_j), with tau_j below it.
    fill(t, BLOCK * BLOCK, 0);
    for (size_t j = 0; j < width; j++) {
        fill(sums, j, 0);
        for (size_t i = j; i < m - first; i++) axpy(sums, v[i * width + j], v + i * width, j);
        for (size_t i = 0; i < j; i++) t[i * BLOCK + j] = -taus[j] * dot(t + i * BLOCK + i, sums + i, j - i);
        t[j * BLOCK + j] = taus[j];
    }
}

// c (rows, cols) -= v op(T) vᵀ c, op the transpose where `across`; u and w are room for BLOCK rows of c.
static void reflect_block(double *c, size_t c_row, size_t rows, size_t cols, const double *v, size_t width, const double *t, bool across,
                          double *u, double *w) {
    fill(u, width * cols, 0);
    fill(w, width * cols, 0);
    subtract_product(width, cols, rows, v, 1, width, c, c_row, u, cols);                               // u = -vᵀ c
    subtract_product(width, cols, width, t, across ? 1 : BLOCK, across ? BLOCK : 1, u, cols, w, cols); // w = op(T) vᵀ c
    subtract_product(rows, cols, width, v, width, 1, w, cols, c, c_row);
}

// a (m, n) becomes R; q (m, k) with orthonormal columns. `room` as chunks of vectors, triangular factors and two strips.
static void factor(double *a, double *q, size_t m, size_t n, double *room) {
    size_t k = smaller(m, n), wide = larger((double)k, (double)n);
    double *vectors = room, *triangles = vectors + m * k, *u = triangles + (k + BLOCK) * BLOCK, *w = u + BLOCK * wide,
           *column = w + BLOCK * wide;
    for (size_t first = 0; first < k; first += BLOCK) {
        size_t end = smaller(first + BLOCK, k);
        double *v = vectors + m * first, *t = triangles + first * BLOCK;
        factor_panel(a, m, n, first, end, v, t, column);
        reflect_block(a + first * n + end, n, m - first, n - end, v, end - first, t, true, u, w);
    }
    fill(q, m * k, 0);
    for (size_t i = 0; i < k; i++) q[i * k + i] = 1;
    for (size_t blocks = (k + BLOCK - 1) / BLOCK; blocks-- > 0;) {
        size_t first = blocks * BLOCK, end = smaller(first + BLOCK, k);
        reflect_block(q + first * k + first, k, m - first, k - first, vectors + m * first, end - first, triangles + first * BLOCK, false, u,
                      w);
    }
}

uint32_t chunks_qr(const Call *call) {
    PUSH(FactorPush);
    return p->batch;
}

// out: Q (m, k), R (k, n).
void k_qr(const Call *call, uint32_t from, uint32_t to) {
    PUSH(FactorPush);
    size_t m = p->rows, n = p->cols, k = smaller(m, n);
    for (size_t at = from; at < to; at++) {
        double *a = (double *)call->buffer[2] + at * p->work, *q = a + m * n;
        load_doubles(a, call->buffer[0], at * m * n, m * n, call->spec[1]);
        double scale = normalise(a, m * n);
        factor(a, q, m, n, q + m * k);
        for (size_t i = 0; i < k * n; i++) a[i] *= scale;
        if (scale != scale) fill(q, m * k, scale);
        store_doubles(call->buffer[3], at * p->results, q, m * k, call->spec[2]);
        store_doubles(call->buffer[3], at * p->results + m * k, a, k * n, call->spec[2]);
    }
}
