// Kernels lu, inverse, solve, solve_triangular and cholesky: factors of square systems and what follows from them.
//
// A chunk is a matrix of the batch. Blocked: panels of BLOCK columns, the rest in products of dense.h.

#include "linalg/dense.h"

enum { BLOCK = 48 };

// a (m, n) = P L U in place with partial pivoting; row i was exchanged with row pivots[i]. Whether no pivot is 0.
static bool factor(double *a, size_t m, size_t n, uint32_t *pivots) {
    size_t k = smaller(m, n);
    bool regular = true;
    for (size_t first = 0; first < k; first += BLOCK) {
        size_t end = smaller(first + BLOCK, k);
        for (size_t j = first; j < end; j++) {
            size_t pivot = j;
            for (size_t i = j + 1; i < m; i++)
                if (absolute(a[i * n + j]) > absolute(a[pivot * n + j])) pivot = i;
            pivots[j] = (uint32_t)pivot;
            if (pivot != j) exchange_rows(a + j * n, a + pivot * n, n);
            double diagonal = a[j * n + j];
            if (diagonal == 0) {
                regular = false;
                continue;
            }
            for (size_t i = j + 1; i < m; i++) {
                double l = a[i * n + j] / diagonal;
                a[i * n + j] = l;
                axpy(a + i * n + j + 1, -l, a + j * n + j + 1, end - j - 1);
            }
        }
        for (size_t i = first + 1; i < end; i++)
            for (size_t j = first; j < i; j++) axpy(a + i * n + end, -a[i * n + j], a + j * n + end, n - end);
        subtract_product(m - end, n - end, end - first, a + end * n + first, n, 1, a + first * n + end, n, a + end * n + end, n);
    }
    return regular;
}

uint32_t chunks_lu(const Call *call) {
    PUSH(FactorPush);
    return p->batch;
}

// out: the factors (m, n), the pivots (k), and for each row of P L its row in L (m), as numbers.
void k_lu(const Call *call, uint32_t from, uint32_t to) {
    PUSH(FactorPush);
    size_t m = p->rows, n = p->cols, k = smaller(m, n), size = m * n;
    for (size_t at = from; at < to; at++) {
        double *a = (double *)call->buffer[2] + at * p->work, *numbers = a + size;
        uint32_t *pivots = (uint32_t *)(numbers + k + m);
        load_doubles(a, call->buffer[0], at * size, size, call->spec[1]);
        factor(a, m, n, pivots);
        for (size_t i = 0; i < k; i++) numbers[i] = pivots[i];
        // order[i] is the row of the input that came to row i; its inverse is asked for.
        uint32_t *order = pivots + k;
        for (size_t i = 0; i < m; i++) order[i] = (uint32_t)i;
        for (size_t i = 0; i < k; i++) {
            uint32_t row = order[i];
            order[i] = order[pivots[i]];
            order[pivots[i]] = row;
        }
        for (size_t i = 0; i < m; i++) numbers[k + order[i]] = (double)i;
        store_doubles(call->buffer[3], at * p->results, a, size + k + m, call->spec[2]);
    }
}

// x = the solution of a x = x, NaN if a is singular; a is replaced by its factors.
static void solve_general(double *a, double *x, size_t n, size_t cols, uint32_t *pivots) {
    if (!factor(a, n, n, pivots)) return fill(x, n * cols, NOT_A_NUMBER);
    for (size_t i = 0; i < n; i++)
        if (pivots[i] != i) exchange_rows(x + i * cols, x + pivots[i] * cols, cols);
    solve_lower(a, n, true, x, n, cols);
    solve_upper(a, n, x, n, cols);
}

static bool has_zero(const double *a, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a[i * n + i] == 0) return true;
    return false;
}

static void solve_triangle(const double *a, double *x, size_t n, size_t cols, bool upper) {
    if (has_zero(a, n)) fill(x, n * cols, NOT_A_NUMBER);
    else if (upper) solve_upper(a, n, x, n, cols);
    else solve_lower(a, n, false, x, n, cols);
}

// The common part of solve, inverse and their triangular forms: the right side is b, or the identity without one.
static void solve_chunks(const Call *call, uint32_t from, uint32_t to, bool triangular) {
    PUSH(FactorPush);
    size_t n = p->rows, cols = p->cols;
    for (size_t at = from; at < to; at++) {
        double *a = (double *)call->buffer[2] + at * p->work, *x = a + n * n;
        load_doubles(a, call->buffer[0], at * n * n, n * n, call->spec[1]);
        if (call->buffer[1]) load_doubles(x, call->buffer[1], at * n * cols, n * cols, call->spec[1]);
        else set_identity(x, n);
        if (triangular) solve_triangle(a, x, n, cols, p->flag);
        else solve_general(a, x, n, cols, (uint32_t *)(x + n * cols));
        store_doubles(call->buffer[3], at * p->results, x, n * cols, call->spec[2]);
    }
}

uint32_t chunks_solve(const Call *call) { return chunks_lu(call); }
void k_solve(const Call *call, uint32_t from, uint32_t to) { solve_chunks(call, from, to, false); }

uint32_t chunks_solve_triangular(const Call *call) { return chunks_lu(call); }
void k_solve_triangular(const Call *call, uint32_t from, uint32_t to) { solve_chunks(call, from, to, true); }

// a = L Lᵀ in place, from the lower triangle; across is room for BLOCK rows. A pivot that is 0 to the rounding of the input leaves
// its column 0, so semidefinite matrices have factors too. Whether all pivots are ≥ 0.
static bool factor_positive(double *a, size_t n, double *across, double rounding) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = larger(most, absolute(a[i * n + i]));
    double least = (double)n * rounding * most;
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t end = smaller(first + BLOCK, n), width = end - first;
        for (size_t j = first; j < end; j++) {
            double *row = a + j * n;
            double pivot = row[j] - dot(row + first, row + first, j - first);
            if (!(pivot >= -least)) return false;
            double diagonal = pivot > 0 ? root(pivot) : 0;
            row[j] = diagonal;
            for (size_t i = j + 1; i < n; i++) {
                double rest = a[i * n + j] - dot(a + i * n + first, row + first, j - first);
                a[i * n + j] = diagonal > 0 ? rest / diagonal : 0;
            }
        }
        size_t left = n - end;
        for (size_t i = 0; i < left; i++)
            for (size_t j = 0; j < width; j++) across[j * left + i] = a[(end + i) * n + first + j];
        // Only the lower triangle, in strips of columns.
        for (size_t j = 0; j < left; j += BLOCK)
            subtract_product(left - j, smaller(BLOCK, left - j), width, a + (end + j) * n + first, n, 1, across + j, left,
                             a + (end + j) * n + end + j, n);
    }
    return true;
}

uint32_t chunks_cholesky(const Call *call) { return chunks_lu(call); }

// out: L, or U = Lᵀ from the upper triangle with `flag`; NaN if the matrix is not positive.
void k_cholesky(const Call *call, uint32_t from, uint32_t to) {
    PUSH(FactorPush);
    size_t n = p->rows, size = n * n;
    for (size_t at = from; at < to; at++) {
        double *a = (double *)call->buffer[2] + at * p->work, *other = a + size;
        load_doubles(p->flag ? other : a, call->buffer[0], at * size, size, call->spec[1]);
        if (p->flag) transpose(a, other, n, n);
        bool positive = factor_positive(a, n, other, dtype_epsilon(call->spec[1]));
        for (size_t i = 0; i < n; i++) fill(a + i * n + i + 1, n - i - 1, 0);
        if (!positive) fill(a, size, NOT_A_NUMBER);
        if (p->flag) transpose(other, a, n, n);
        store_doubles(call->buffer[3], at * p->results, p->flag ? other : a, size, call->spec[2]);
    }
}
