// Kernel eigh: eigenvalues and eigenvectors of symmetric and Hermitian matrices, by reflectors to a tridiagonal one, which is real, and
// the implicit QL method.
//
// Vectors are kept as rows, so that every rotation walks two contiguous rows.

#include "linalg/dense_complex.h"

enum { MAX_STEPS = 60 };

// a becomes tridiagonal: diagonal d, beside it e[0..n - 2]. Row k of a keeps the vector of reflector k, taus its factor.
static void tridiagonalise(double *a, size_t n, double *d, double *e, double *taus, double *w) {
    for (size_t k = 0; k + 1 < n; k++) {
        double *v = a + k * n + k + 1, *rest = a + (k + 1) * n + k + 1;
        size_t left = n - k - 1;
        d[k] = a[k * n + k];
        e[k] = reflector(v, left, &taus[k]);
        if (taus[k] == 0) continue;
        // rest -= v wᵀ + w vᵀ with w = tau (rest v - tau/2 (vᵀ rest v) v)
        for (size_t i = 0; i < left; i++) w[i] = taus[k] * dot(rest + i * n, v, left);
        axpy(w, -0.5 * taus[k] * dot(w, v, left), v, left);
        for (size_t i = 0; i < left; i++) {
            double x = v[i], y = w[i];
            for (size_t j = 0; j < left; j++) rest[i * n + j] -= x * w[j] + y * v[j];
        }
    }
    d[n - 1] = a[n * n - 1];
    e[n - 1] = 0;
}

// Eigenvalues of the tridiagonal matrix into d; rows of z are turned along. Whether it converged.
static bool diagonalise(double *d, double *e, size_t n, double *z) {
    for (size_t l = 0; l < n; l++) {
        for (int step = 0;; step++) {
            size_t m = l;
            while (m + 1 < n && absolute(e[m]) > EPSILON * (absolute(d[m]) + absolute(d[m + 1])) + 1e-290) m++;
            if (m == l) break;
            if (step == MAX_STEPS) return false;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = hypotenuse(g, 1);
            g = d[m] - d[l] + e[l] / (g + __builtin_copysign(r, g));
            double s = 1, c = 1, p = 0;
            bool split = false;
            for (size_t i = m; i-- > l;) {
                double f = s * e[i], b = c * e[i];
                r = hypotenuse(f, g);
                e[i + 1] = r;
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    split = true;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                if (z) rotate(z + (i + 1) * n, z + i * n, c, s, n);
            }
            if (split) continue;
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }
    }
    return true;
}

static void sort_ascending(double *d, size_t n, double *z) {
    for (size_t i = 0; i < n; i++) {
        size_t least = i;
        for (size_t j = i + 1; j < n; j++)
            if (d[j] < d[least]) least = j;
        if (least == i) continue;
        exchange_rows(d + i, d + least, 1);
        if (z) exchange_rows(z + i * n, z + least * n, n);
    }
}

uint32_t chunks_eigh(const Call *call) {
    PUSH(FactorPush);
    return p->batch;
}

// A Hermitian matrix becomes tridiagonal, as in tridiagonalise. Row k of a keeps the vector of reflector k: its column conjugated.
static void tridiagonalise_complex(Z *a, size_t n, double *d, double *e, Z *taus, Z *w) {
    for (size_t k = 0; k + 1 < n; k++) {
        Z *v = a + k * n + k + 1, *rest = a + (k + 1) * n + k + 1, tau;
        size_t left = n - k - 1;
        d[k] = a[k * n + k].re;
        for (size_t i = 0; i < left; i++) v[i] = z_conj(v[i]);
        e[k] = z_reflector(v, left, &tau);
        taus[k] = tau;
        if (tau.re == 0 && tau.im == 0) continue;
        // rest -= v wᴴ + w vᴴ with w = p - (conj(tau) vᴴ p / 2) v and p = tau rest v
        for (size_t i = 0; i < left; i++) w[i] = z_mul(tau, z_dot(rest + i * n, v, left));
        z_axpy(w, z_scale(z_mul(z_conj(tau), z_inner(v, w, left)), -0.5), v, left);
        for (size_t i = 0; i < left; i++) {
            z_axpy_conj(rest + i * n, z_scale(v[i], -1), w, left);
            z_axpy_conj(rest + i * n, z_scale(w[i], -1), v, left);
        }
    }
    d[n - 1] = a[n * n - 1].re;
    e[n - 1] = 0;
}

// As k_eigh for complex64: all results are complex64, the values as well.
static void eigh_complex(const Call *call, uint32_t from, uint32_t to) {
    PUSH(FactorPush);
    size_t n = p->rows, size = n * n;
    bool vectors = !p->flag;
    for (size_t at = from; at < to; at++) {
        Z *a = (Z *)((double *)call->buffer[2] + at * p->work), *taus = a + size, *w = taus + n, *y = w + n;
        double *d = (double *)(vectors ? y + size : y), *e = d + n, *z = e + n;
        z_load(a, call->buffer[0], at * size, size);
        for (size_t i = 0; i < n; i++) {
            a[i * n + i].im = 0;
            for (size_t j = 0; j < i; j++) {
                if (p->upper) a[i * n + j] = z_conj(a[j * n + i]);
                else a[j * n + i] = z_conj(a[i * n + j]);
            }
        }
        double scale = normalise((double *)a, 2 * size);
        bool right = scale == scale;
        if (right) {
            tridiagonalise_complex(a, n, d, e, taus, w);
            if (vectors) set_identity(z, n);
            right = diagonalise(d, e, n, vectors ? z : NULL);
        }
        if (right) sort_ascending(d, n, vectors ? z : NULL);
        for (size_t i = 0; i < n; i++) w[i] = z_of(right ? d[i] * scale : NOT_A_NUMBER, 0);
        z_store(call->buffer[3], at * p->results, w, n);
        if (!vectors) continue;
        if (right) {
            z_from_real(y, z, size);
            for (size_t k = n - 1; k-- > 0;) z_reflect_rows(y + k + 1, n, n, a + k * n + k + 1, n - k - 1, taus[k]);
            z_transpose(a, y, n, n, false);
        } else z_fill(a, size, NOT_A_NUMBER);
        z_store(call->buffer[3], at * p->results + n, a, size);
    }
}

// out: the values (n), ascending, and unless `flag` the vectors as columns (n, n). The lower triangle is read, or with `upper` the other.
void k_eigh(const Call *call, uint32_t from, uint32_t to) {
    if (call->spec[1] == DTYPE_C64) return eigh_complex(call, from, to);
    PUSH(FactorPush);
    size_t n = p->rows, size = n * n;
    bool vectors = !p->flag;
    for (size_t at = from; at < to; at++) {
        double *a = (double *)call->buffer[2] + at * p->work, *d = a + size, *e = d + n, *taus = e + n, *w = taus + n, *z = w + n;
        load_doubles(a, call->buffer[0], at * size, size, call->spec[1]);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < i; j++) {
                if (p->upper) a[i * n + j] = a[j * n + i];
                else a[j * n + i] = a[i * n + j];
            }
        double scale = normalise(a, size);
        bool right = scale == scale;
        if (right) {
            tridiagonalise(a, n, d, e, taus, w);
            if (vectors) {
                set_identity(z, n);
                for (size_t k = n - 1; k-- > 0;) reflect_rows(z + (k + 1) * n + k + 1, n, n - k - 1, a + k * n + k + 1, n - k - 1, taus[k]);
            }
            right = diagonalise(d, e, n, vectors ? z : NULL);
        }
        if (right) sort_ascending(d, n, vectors ? z : NULL);
        for (size_t i = 0; i < n; i++) d[i] = right ? d[i] * scale : NOT_A_NUMBER;
        store_doubles(call->buffer[3], at * p->results, d, n, call->spec[2]);
        if (!vectors) continue;
        if (!right) fill(z, size, NOT_A_NUMBER);
        transpose(a, z, n, n);
        store_doubles(call->buffer[3], at * p->results + n, a, size, call->spec[2]);
    }
}
