// See double_matmul.h. Every sum is made in the order of the depth, whatever the number of threads.

#include "matmul/double_matmul.h"

#include "linalg/dense.h"
#include "wide.h"

static double element(const DoubleLines *x, uint32_t line, uint32_t at) {
    const ptrdiff_t place = (ptrdiff_t)line * x->line_stride + (ptrdiff_t)at * x->depth_stride;
    return load_double(x->data + place * (ptrdiff_t)DTYPE_BYTES(x->dtype), x->dtype);
}

void double_matmul_block(const DoubleLines *a, const DoubleLines *b, uint32_t m, uint32_t n, uint32_t k, double *out, uint32_t block) {
    double left[DOUBLE_M * DOUBLE_K], right[DOUBLE_K * DOUBLE_N], sums[DOUBLE_M * DOUBLE_N];
    const uint32_t row = block * DOUBLE_M, rows = (uint32_t)smaller(DOUBLE_M, m - row);
    for (uint32_t column = 0; column < n; column += DOUBLE_N) {
        const uint32_t columns = (uint32_t)smaller(DOUBLE_N, n - column);
        __builtin_memset(sums, 0, sizeof sums);
        for (uint32_t first = 0; first < k; first += DOUBLE_K) {
            const uint32_t depth = (uint32_t)smaller(DOUBLE_K, k - first);
            for (uint32_t i = 0; i < rows; i++)
                for (uint32_t d = 0; d < depth; d++) left[i * DOUBLE_K + d] = element(a, row + i, first + d);
            for (uint32_t d = 0; d < depth; d++)
                for (uint32_t j = 0; j < columns; j++) right[d * DOUBLE_N + j] = element(b, column + j, first + d);
            subtract_product(rows, columns, depth, left, DOUBLE_K, 1, right, DOUBLE_N, sums, DOUBLE_N);
        }
        // 0 - x, so that a sum of nothing is 0 and not -0.
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = 0; j < columns; j++) out[(size_t)(row + i) * n + column + j] = 0 - sums[i * DOUBLE_N + j];
    }
}
