// Kernel svd: reflectors make a bidiagonal matrix, real also for a complex input. Implicit QR steps follow (Golub and
// Kahan; the cases as in LINPACK).
//
// Both factors are kept as rows of their transposes, so that every rotation walks two contiguous rows.

#include "linalg/dense_complex.h"

enum { MAX_STEPS = 75 };

// The rotation that turns (f, g) into (r, 0).
static double rotation(double f, double g, double *c, double *s) {
    double r = hypotenuse(f, g);
    *c = r == 0 ? 1 : f / r;
    *s = r == 0 ? 0 : g / r;
    return r;
}

// a (m, n), m ≥ n, becomes bidiagonal: d on the diagonal, e above it. Columns of a below the diagonal keep the left vectors, rows
// beyond the second diagonal the right ones; taus[j] and taus[n + j] are their factors.
static void bidiagonalise(double *a, size_t m, size_t n, double *d, double *e, double *taus, double *column, double *sums) {
    for (size_t j = 0; j < n; j++) {
        size_t rest = n - j - 1;
        for (size_t i = j; i < m; i++) column[i - j] = a[i * n + j];
        d[j] = reflector(column, m - j, &taus[j]);
        fill(sums, rest, 0);
        for (size_t i = j; i < m; i++) axpy(sums, column[i - j], a + i * n + j + 1, rest);
        for (size_t i = j; i < m; i++) {
            axpy(a + i * n + j + 1, -taus[j] * column[i - j], sums, rest);
            a[i * n + j] = column[i - j];
        }
        e[j] = taus[n + j] = 0;
        if (rest == 0) continue;
        e[j] = reflector(a + j * n + j + 1, rest, &taus[n + j]);
        reflect_rows(a + (j + 1) * n + j + 1, n, m - j - 1, a + j * n + j + 1, rest, taus[n + j]);
    }
}

// Rows of u (m, m) and v (n, n): the factors' columns, from what bidiagonalise left.
static void accumulate(const double *a, size_t m, size_t n, const double *taus, double *u, double *v, double *column) {
    set_identity(u, m);
    set_identity(v, n);
    for (size_t j = n; j-- > 0;) {
        for (size_t i = j; i < m; i++) column[i - j] = a[i * n + j];
        reflect_rows(u + j * m + j, m, m - j, column, m - j, taus[j]);
        if (j + 1 < n) reflect_rows(v + (j + 1) * n + j + 1, n, n - j - 1, a + j * n + j + 1, n - j - 1, taus[n + j]);
    }
}

// One implicit step with a shift on the block k..last.
static void chase(double *d, double *e, size_t k, size_t last, double *u, size_t m, double *v, size_t n) {
    double scale =
        larger(larger(larger(absolute(d[last]), absolute(d[last - 1])), larger(absolute(e[last - 1]), absolute(d[k]))), absolute(e[k]));
    double sp = d[last] / scale, spm1 = d[last - 1] / scale, epm1 = e[last - 1] / scale, sk = d[k] / scale, ek = e[k] / scale;
    double b = ((spm1 + sp) * (spm1 - sp) + epm1 * epm1) / 2, c0 = (sp * epm1) * (sp * epm1), shift = 0;
    if (b != 0 || c0 != 0) {
        shift = b + __builtin_copysign(root(b * b + c0), b);
        shift = c0 / shift;
    }
    double f = (sk + sp) * (sk - sp) + shift, g = sk * ek;
    for (size_t j = k; j < last; j++) {
        double c, s, t = rotation(f, g, &c, &s);
        if (j != k) e[j - 1] = t;
        f = c * d[j] + s * e[j];
        e[j] = c * e[j] - s * d[j];
        g = s * d[j + 1];
        d[j + 1] *= c;
        if (v) rotate(v + j * n, v + (j + 1) * n, c, s, n);
        d[j] = rotation(f, g, &c, &s);
        f = c * e[j] + s * d[j + 1];
        d[j + 1] = c * d[j + 1] - s * e[j];
        g = s * e[j + 1];
        e[j + 1] *= c;
        if (u) rotate(u + j * m, u + (j + 1) * m, c, s, m);
    }
    e[last - 1] = f;
}

// Singular values into d, not negative and descending; rows of u and v are turned along. Whether it converged.
static bool diagonalise(double *d, double *e, size_t n, double *u, size_t m, double *v) {
    size_t steps = 0;
    for (size_t left = n; left > 0;) {
        size_t last = left - 1, k = last;
        // k: where the block that ends at `last` begins; zeros on the second diagonal part blocks.
        for (; k > 0; k--)
            if (absolute(e[k - 1]) <= EPSILON * (absolute(d[k - 1]) + absolute(d[k])) + 1e-290) {
                e[k - 1] = 0;
                break;
            }
        if (k == last) {
            if (d[last] < 0) {
                d[last] = -d[last];
                if (v)
                    for (size_t i = 0; i < n; i++) v[last * n + i] = -v[last * n + i];
            }
            for (size_t i = last; i + 1 < n && d[i] < d[i + 1]; i++) {
                exchange_rows(d + i, d + i + 1, 1);
                if (v) exchange_rows(v + i * n, v + (i + 1) * n, n);
                if (u) exchange_rows(u + i * m, u + (i + 1) * m, m);
            }
            left--;
            steps = 0;
            continue;
        }
        if (++steps > MAX_STEPS) return false;
        // A zero on the diagonal: its row, or at the end its column, is turned away.
        size_t zero = left;
        for (size_t i = k; i <= last; i++) {
            double beside = (i < last ? absolute(e[i]) : 0) + (i > k ? absolute(e[i - 1]) : 0);
            if (absolute(d[i]) <= EPSILON * beside + 1e-290) zero = i;
        }
        double c, s;
        if (zero == last) {
            double f = e[last - 1];
            e[last - 1] = d[last] = 0;
            for (size_t j = last; j-- > k;) {
                d[j] = rotation(d[j], f, &c, &s);
                if (j > k) {
                    f = -s * e[j - 1];
                    e[j - 1] *= c;
                }
                if (v) rotate(v + j * n, v + last * n, c, s, n);
            }
        } else if (zero < left) {
            double f = e[zero];
            e[zero] = d[zero] = 0;
            for (size_t j = zero + 1; j <= last; j++) {
                d[j] = rotation(d[j], f, &c, &s);
                if (j < last) {
                    f = -s * e[j];
                    e[j] *= c;
                }
                if (u) rotate(u + j * m, u + zero * m, c, s, m);
            }
        } else chase(d, e, k, last, u, m, v, n);
    }
    return true;
}

uint32_t chunks_svd(const Call *call) {
    PUSH(FactorPush);
    return p->batch;
}

// A complex matrix becomes bidiagonal and real, as in bidiagonalise; taus[n + j] and the rows are those of G in Hᴴ a G.
static void bidiagonalise_complex(Z *a, size_t m, size_t n, double *d, double *e, Z *taus, Z *column, Z *sums) {
    for (size_t j = 0; j < n; j++) {
        size_t rest = n - j - 1;
        Z *row = a + j * n + j + 1;
        for (size_t i = j; i < m; i++) column[i - j] = a[i * n + j];
        d[j] = z_reflector(column, m - j, &taus[j]);
        z_reflect_left(row, n, m - j, rest, column, taus[j], sums);
        for (size_t i = j; i < m; i++) a[i * n + j] = column[i - j];
        e[j] = 0;
        taus[n + j] = z_of(0, 0);
        if (rest == 0) continue;
        for (size_t i = 0; i < rest; i++) row[i] = z_conj(row[i]);
        e[j] = z_reflector(row, rest, &taus[n + j]);
        z_reflect_right(row + n, n, m - j - 1, row, rest, taus[n + j]);
    }
}

// As k_svd for complex64: all results are complex64, the values as well.
static void svd_complex(const Call *call, uint32_t from, uint32_t to) {
    PUSH(FactorPush);
    const bool wide = p->rows < p->cols, vectors = !p->flag;
    size_t m = wide ? p->cols : p->rows, n = wide ? p->rows : p->cols, rows = p->rows, cols = p->cols;
    for (size_t at = from; at < to; at++) {
        Z *a = (Z *)((double *)call->buffer[2] + at * p->work), *taus = a + m * n, *column = taus + 2 * n, *sums = column + m,
          *u = sums + n, *v = u + m * m, *turned = v + n * n;
        double *d = (double *)(vectors ? turned + m * m : u), *e = d + n, *real_u = e + n, *real_v = real_u + m * m;
        // A wide input is loaded where the vectors come later, and its conjugate transpose goes to `a`.
        z_load(wide ? taus : a, call->buffer[0], at * m * n, m * n);
        if (wide) z_transpose(a, taus, n, m, true);
        double scale = normalise((double *)a, 2 * m * n);
        bool right = scale == scale;
        if (right) {
            bidiagonalise_complex(a, m, n, d, e, taus, column, sums);
            if (vectors) {
                set_identity(real_u, m);
                set_identity(real_v, n);
            }
            right = diagonalise(d, e, n, vectors ? real_u : NULL, m, vectors ? real_v : NULL);
        }
        for (size_t i = 0; i < n; i++) sums[i] = z_of(right ? d[i] * scale : NOT_A_NUMBER, 0);
        z_store(call->buffer[3], at * p->results, sums, n);
        if (!vectors) continue;
        if (right) {
            z_from_real(u, real_u, m * m);
            z_from_real(v, real_v, n * n);
            for (size_t j = n; j-- > 0;) {
                for (size_t i = j; i < m; i++) column[i - j] = a[i * n + j];
                z_reflect_rows(u + j, m, m, column, m - j, taus[j]);
                if (j + 1 < n) z_reflect_rows(v + j + 1, n, n, a + j * n + j + 1, n - j - 1, taus[n + j]);
            }
        } else z_fill(u, m * m + n * n, NOT_A_NUMBER);
        // The rows of u and v are columns of U and V; of the conjugate transpose, V and U.
        Z *left = wide ? v : u, *across = wide ? u : v;
        z_transpose(turned, left, rows, rows, false);
        z_store(call->buffer[3], at * p->results + n, turned, rows * rows);
        for (size_t i = 0; i < cols * cols; i++) across[i] = z_conj(across[i]);
        z_store(call->buffer[3], at * p->results + n + rows * rows, across, cols * cols);
    }
}

// out: the values (k), descending, and unless `flag` U (m, m) and Vᵀ (n, n).
void k_svd(const Call *call, uint32_t from, uint32_t to) {
    if (call->spec[1] == DTYPE_C64) return svd_complex(call, from, to);
    PUSH(FactorPush);
    const bool wide = p->rows < p->cols, vectors = !p->flag;
    size_t m = wide ? p->cols : p->rows, n = wide ? p->rows : p->cols;
    for (size_t at = from; at < to; at++) {
        double *a = (double *)call->buffer[2] + at * p->work, *d = a + m * n, *e = d + n, *taus = e + n, *column = taus + 2 * n,
               *sums = column + m;
        double *v = sums + n, *u = v + n * n, *turned = u + m * m;
        load_doubles(wide ? d : a, call->buffer[0], at * m * n, m * n, call->spec[1]);
        if (wide) transpose(a, d, n, m);
        double scale = normalise(a, m * n);
        bool right = scale == scale;
        if (right) {
            bidiagonalise(a, m, n, d, e, taus, column, sums);
            if (vectors) accumulate(a, m, n, taus, u, v, column);
            right = diagonalise(d, e, n, vectors ? u : NULL, m, vectors ? v : NULL);
        }
        for (size_t i = 0; i < n; i++) d[i] = right ? d[i] * scale : NOT_A_NUMBER;
        store_doubles(call->buffer[3], at * p->results, d, n, call->spec[2]);
        if (!vectors) continue;
        if (!right) fill(v, n * n + m * m, NOT_A_NUMBER);
        // The rows of u and v are columns of U and V; of the transposed input, V and U.
        double *left = wide ? v : u, *across = wide ? u : v;
        transpose(turned, left, p->rows, p->rows);
        store_doubles(call->buffer[3], at * p->results + n, turned, (size_t)p->rows * p->rows, call->spec[2]);
        store_doubles(call->buffer[3], at * p->results + n + (size_t)p->rows * p->rows, across, (size_t)p->cols * p->cols, call->spec[2]);
    }
}
