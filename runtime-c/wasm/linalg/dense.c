// Products and substitution of dense.h: tiles of four by four elements in registers, blocks of BLOCK rows.

#include "linalg/dense.h"

enum { BLOCK = 48 };

double normalise(double *a, size_t n) {
    double most = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        most = larger(most, absolute(a[i]));
        sum += a[i] * 0;
    }
    if (sum != 0) return NOT_A_NUMBER; // of NaN and infinities, times 0 is NaN
    if (most == 0) return 1;
    // Subnormal numbers are brought up first.
    double lift = most < 0x1p-1000 ? 0x1p100 : 1;
    double power = __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, most *lift) & 0x7ff0000000000000u);
    for (size_t i = 0; i < n; i++) a[i] = a[i] * lift / power;
    return power / lift;
}

static inline v128_t at2(const double *p) { return wasm_v128_load(p); }

// Four rows and four columns.
static void tile(size_t k, const double *a, size_t row, size_t column, const double *b, size_t b_row, double *c, size_t c_row) {
    v128_t sums[4][2];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) sums[i][j] = wasm_f64x2_splat(0);
    for (size_t p = 0; p < k; p++) {
        v128_t b0 = at2(b + p * b_row), b1 = at2(b + p * b_row + 2);
        for (int i = 0; i < 4; i++) {
            v128_t x = wasm_v128_load64_splat(a + (size_t)i * row + p * column);
            sums[i][0] = wasm_f64x2_relaxed_madd(x, b0, sums[i][0]);
            sums[i][1] = wasm_f64x2_relaxed_madd(x, b1, sums[i][1]);
        }
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            double *to = c + (size_t)i * c_row + 2 * j;
            wasm_v128_store(to, wasm_f64x2_sub(at2(to), sums[i][j]));
        }
}

static void edge(size_t m, size_t n, size_t k, const double *a, size_t row, size_t column, const double *b, size_t b_row, double *c,
                 size_t c_row) {
    for (size_t i = 0; i < m; i++)
        for (size_t p = 0; p < k; p++) axpy(c + i * c_row, -a[i * row + p * column], b + p * b_row, n);
}

void subtract_product(size_t m, size_t n, size_t k, const double *a, size_t row, size_t column, const double *b, size_t b_row, double *c,
                      size_t c_row) {
    enum { DEPTH = 128 }; // four columns of so many rows of b stay in the first cache
    size_t whole = m & ~(size_t)3, wide = n & ~(size_t)3;
    for (size_t p = 0; p < k; p += DEPTH) {
        size_t depth = smaller(DEPTH, k - p);
        const double *a_part = a + p * column, *b_part = b + p * b_row;
        for (size_t j = 0; j < wide; j += 4)
            for (size_t i = 0; i < whole; i += 4) tile(depth, a_part + i * row, row, column, b_part + j, b_row, c + i * c_row + j, c_row);
        edge(whole, n - wide, depth, a_part, row, column, b_part + wide, b_row, c + wide, c_row);
        edge(m - whole, n, depth, a_part + whole * row, row, column, b_part, b_row, c + whole * c_row, c_row);
    }
}

void solve_lower(const double *t, size_t row, bool unit, double *x, size_t n, size_t cols) {
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t end = smaller(first + BLOCK, n);
        for (size_t i = first; i < end; i++) {
            for (size_t j = first; j < i; j++) axpy(x + i * cols, -t[i * row + j], x + j * cols, cols);
            if (!unit)
                for (size_t j = 0; j < cols; j++) x[i * cols + j] /= t[i * row + i];
        }
        subtract_product(n - end, cols, end - first, t + end * row + first, row, 1, x + first * cols, cols, x + end * cols, cols);
    }
}

void solve_upper(const double *t, size_t row, double *x, size_t n, size_t cols) {
    for (size_t end = n; end > 0;) {
        size_t first = end > BLOCK ? end - BLOCK : 0;
        for (size_t i = end; i-- > first;) {
            for (size_t j = i + 1; j < end; j++) axpy(x + i * cols, -t[i * row + j], x + j * cols, cols);
            for (size_t j = 0; j < cols; j++) x[i * cols + j] /= t[i * row + i];
        }
        subtract_product(first, cols, end - first, t + first, row, 1, x + first * cols, cols, x, cols);
        end = first;
    }
}

double reflector(double *x, size_t n, double *tau) {
    double alpha = x[0], rest = dot(x + 1, x + 1, n - 1);
    x[0] = 1;
    *tau = 0;
    if (rest == 0 || alpha * alpha + rest < MIN_SQUARE) return alpha;
    double beta = -__builtin_copysign(root(alpha * alpha + rest), alpha);
    *tau = (beta - alpha) / beta;
    for (size_t i = 1; i < n; i++) x[i] /= alpha - beta;
    return beta;
}
