// Products of float64, and of floats that meet in it: packed blocks of doubles through the products of dense.h.

#ifndef VKMX_WASM_DOUBLE_MATMUL_H
#define VKMX_WASM_DOUBLE_MATMUL_H
#include "kernel.h"

enum { DOUBLE_M = 32, DOUBLE_N = 64, DOUBLE_K = 128 };

// A matrix of lines: elements `depth_stride` apart along the depth, lines `line_stride` apart; strides count elements.
typedef struct DoubleLines {
    const uint8_t *data;
    ptrdiff_t line_stride, depth_stride;
    uint32_t dtype;
} DoubleLines;

// out (m, n), contiguous, = a (m lines of k) times b (n lines of k); `block` is one of double_blocks(m) blocks of rows.
void double_matmul_block(const DoubleLines *a, const DoubleLines *b, uint32_t m, uint32_t n, uint32_t k, double *out, uint32_t block);

static inline uint32_t double_blocks(uint32_t m) { return (m + DOUBLE_M - 1) / DOUBLE_M; }

#endif
