// Kernel eig: eigenvalues and eigenvectors of general matrices. Reflectors make a Hessenberg matrix, and shifted QR
// steps a Schur form T = Zᴴ A Z. Eigenvectors come from substitution in it.
//
// Of real input T is real, with blocks of two rows for conjugate eigenvalues; of complex input it is triangular. schur_real.h and
// schur_complex.h find it; what follows is common to both.

#include "linalg/schur_complex.h"
#include "linalg/schur_real.h"

// A pivot that is not smaller than the rounding of the eigenvalue: equal ones have the same vector, or near ones.
static Z pivot_of(Z a, double least) { return z_size(a) < least ? z_of(least, 0) : a; }

// (x, y) with p x + q y = f and r x + s y = g, by elimination.
static void solve_pair(Z p, Z q, Z r, Z s, Z f, Z g, double least, Z *x, Z *y) {
    if (z_size(r) > z_size(p)) return solve_pair(r, s, p, q, g, f, least, x, y);
    Z pivot = pivot_of(p, least), by = z_div(r, pivot);
    *y = z_div(z_sub(g, z_mul(by, f)), pivot_of(z_sub(s, z_mul(by, q)), least));
    *x = z_div(z_sub(f, z_mul(q, *y)), pivot);
}

static bool is_zero(Z a) { return a.re == 0 && a.im == 0; }

// Whether row i of t is the lower one of a block.
static bool is_lower(const Z *t, size_t n, size_t i) { return i > 0 && !is_zero(t[i * n + i - 1]); }

// x with (t - value) x = 0, where `value` is that of row k, or of the block of rows k and k + 1. How many elements x has.
static size_t null_vector(const Z *t, size_t n, Z value, size_t k, Z *x) {
    size_t count = k + 1;
    double least = larger(EPSILON * z_size(value), 1e-150);
    x[k] = z_of(1, 0);
    if (count < n && is_lower(t, n, count)) {
        Z a = t[k * n + k], b = t[k * n + k + 1], c = t[count * n + k], d = t[count * n + count];
        x[count] = z_of(1, 0);
        if (z_size(b) >= z_size(c)) x[count] = z_div(z_sub(value, a), b);
        else x[k] = z_div(z_sub(value, d), c);
        count++;
    }
    for (size_t i = k; i-- > 0;) {
        const Z *row = t + i * n;
        Z f = z_scale(z_dot(row + i + 1, x + i + 1, count - i - 1), -1);
        if (!is_lower(t, n, i)) x[i] = z_div(f, pivot_of(z_sub(row[i], value), least));
        else {
            const Z *above = row - n;
            Z g = z_scale(z_dot(above + i + 1, x + i + 1, count - i - 1), -1);
            solve_pair(z_sub(above[i - 1], value), above[i], row[i - 1], z_sub(row[i], value), g, f, least, &x[i - 1], &x[i]);
            i--;
        }
        double most = larger(z_size(x[i]), z_size(x[i + 1]));
        if (most > 1e100)
            for (size_t j = i; j < count; j++) x[j] = z_scale(x[j], 1 / most);
    }
    return count;
}

// A vector of length 1 whose largest element is real, as LAPACK has it; a real one keeps its sign.
static void normalise_vector(Z *v, size_t n) {
    double most = 0, sum = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) most = larger(most, z_size(v[i]));
    for (size_t i = 0; i < n; i++) {
        v[i] = z_scale(v[i], 1 / most);
        sum += v[i].re * v[i].re + v[i].im * v[i].im;
        if (z_abs(v[i]) > z_abs(v[at])) at = i;
    }
    Z turn = v[at].im == 0 ? z_of(1, 0) : z_scale(z_conj(v[at]), 1 / z_abs(v[at]));
    for (size_t i = 0; i < n; i++) v[i] = z_scale(z_mul(turn, v[i]), 1 / root(sum));
    v[at].im = 0;
}

// Rows of v: the eigenvectors.
static void eigenvectors(const Z *t, const Z *z, size_t n, const Z *values, Z *v, Z *x) {
    for (size_t k = 0; k < n; k++) {
        Z *row = v + k * n;
        if (is_lower(t, n, k)) {
            for (size_t i = 0; i < n; i++) row[i] = z_conj(row[i - n]);
            continue;
        }
        size_t count = null_vector(t, n, values[k], k, x);
        for (size_t i = 0; i < n; i++) row[i] = z_dot(z + i * n, x, count);
        normalise_vector(row, n);
    }
}

uint32_t chunks_eig(const Call *call) {
    PUSH(FactorPush);
    return p->batch;
}

// out, complex64: the values (n) and unless `flag` the vectors as columns (n, n).
void k_eig(const Call *call, uint32_t from, uint32_t to) {
    PUSH(FactorPush);
    size_t n = p->rows, size = n * n;
    bool vectors = !p->flag, complex = call->spec[1] == DTYPE_C64;
    for (size_t at = from; at < to; at++) {
        Z *values = (Z *)((double *)call->buffer[2] + at * p->work), *x = values + n, *v = x + n, *t = vectors ? v + size : v,
          *z = t + size;
        // A real matrix and its vectors lie where the eigenvectors come later.
        double *real = (double *)v, *turns = real + size, scale;
        bool right;
        if (complex) {
            z_load(t, call->buffer[0], at * size, size);
            scale = normalise((double *)t, 2 * size);
            right = scale == scale && schur_complex(t, n, vectors ? z : NULL, values, x);
        } else {
            load_doubles(real, call->buffer[0], at * size, size, call->spec[1]);
            scale = normalise(real, size);
            right = scale == scale && schur_real(real, n, vectors ? turns : NULL, values, (double *)x);
            if (right && vectors) {
                z_from_real(t, real, size);
                z_from_real(z, turns, size);
            }
        }
        if (right && vectors) eigenvectors(t, z, n, values, v, x);
        for (size_t i = 0; i < n; i++) values[i] = z_scale(values[i], scale);
        if (!right) z_fill(values, n, NOT_A_NUMBER);
        z_store(call->buffer[3], at * p->results, values, n);
        if (!vectors) continue;
        if (right) z_transpose(t, v, n, n, false);
        else z_fill(t, size, NOT_A_NUMBER);
        z_store(call->buffer[3], at * p->results + n, t, size);
    }
}
