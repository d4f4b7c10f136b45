// The dense core of every product: out (m, n) = a (m, k) * b (k, n) in float32 over packed blocks.
//
// Packing brings any stride, dtype or quantization into one layout: a as tiles of 4 rows (k, 4), b as panels of 8
// columns (k, 8). The innermost kernel keeps a 4 x 8 tile of sums in registers; one block of sums stays in cache while
// k advances.

#ifndef VKMX_WASM_GEMM_H
#define VKMX_WASM_GEMM_H
#include "simd.h"

enum { TILE_M = 4, TILE_N = 8, BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 128 };

// Writes rows row..row+3 (columns column..column+7), depths first..first+depth-1, as to[depth][4] (to[depth][8]); what
// lies beyond `count` rows (columns) is 0. `column` is a multiple of 8, `first` and all but the last `depth` of
// BLOCK_K.
typedef void Pack(const void *matrix, uint32_t row, uint32_t count, uint32_t first, uint32_t depth, float *to);

static void multiply_tile(const float *a, const float *b, uint32_t depth, float *c) {
    f4 c00 = f4_load(c), c01 = f4_load(c + 4);
    f4 c10 = f4_load(c + BLOCK_N), c11 = f4_load(c + BLOCK_N + 4);
    f4 c20 = f4_load(c + 2 * BLOCK_N), c21 = f4_load(c + 2 * BLOCK_N + 4);
    f4 c30 = f4_load(c + 3 * BLOCK_N), c31 = f4_load(c + 3 * BLOCK_N + 4);
#pragma clang loop unroll_count(4)
    for (uint32_t k = 0; k < depth; k++, a += TILE_M, b += TILE_N) {
        f4 b0 = f4_load(b), b1 = f4_load(b + 4), x;
        x = f4_splat(a[0]);
        c00 = f4_fma(x, b0, c00);
        c01 = f4_fma(x, b1, c01);
        x = f4_splat(a[1]);
        c10 = f4_fma(x, b0, c10);
        c11 = f4_fma(x, b1, c11);
        x = f4_splat(a[2]);
        c20 = f4_fma(x, b0, c20);
        c21 = f4_fma(x, b1, c21);
        x = f4_splat(a[3]);
        c30 = f4_fma(x, b0, c30);
        c31 = f4_fma(x, b1, c31);
    }
    f4_store(c, c00), f4_store(c + 4, c01);
    f4_store(c + BLOCK_N, c10), f4_store(c + BLOCK_N + 4, c11);
    f4_store(c + 2 * BLOCK_N, c20), f4_store(c + 2 * BLOCK_N + 4, c21);
    f4_store(c + 3 * BLOCK_N, c30), f4_store(c + 3 * BLOCK_N + 4, c31);
}

static void gemm(uint32_t m, uint32_t n, uint32_t k, Pack *pack_a, const void *a, Pack *pack_b, const void *b, uint8_t *out,
                 uint32_t dtype_out) {
    float sums[BLOCK_M * BLOCK_N], a_block[BLOCK_M * BLOCK_K], b_panel[BLOCK_K * TILE_N];
    for (uint32_t m0 = 0; m0 < m; m0 += BLOCK_M) {
        uint32_t rows = min_u32(BLOCK_M, m - m0);
        for (uint32_t n0 = 0; n0 < n; n0 += BLOCK_N) {
            uint32_t columns = min_u32(BLOCK_N, n - n0);
            __builtin_memset(sums, 0, (size_t)((rows + TILE_M - 1) / TILE_M * TILE_M) * BLOCK_N * sizeof(float));
            for (uint32_t k0 = 0; k0 < k; k0 += BLOCK_K) {
                uint32_t depth = min_u32(BLOCK_K, k - k0);
                for (uint32_t i = 0; i < rows; i += TILE_M) {
                    pack_a(a, m0 + i, min_u32(TILE_M, rows - i), k0, depth, a_block + i * BLOCK_K);
                }
                for (uint32_t j = 0; j < columns; j += TILE_N) {
                    pack_b(b, n0 + j, min_u32(TILE_N, columns - j), k0, depth, b_panel);
                    for (uint32_t i = 0; i < rows; i += TILE_M) {
                        multiply_tile(a_block + i * BLOCK_K, b_panel, depth, sums + i * BLOCK_N + j);
                    }
                }
            }
            for (uint32_t i = 0; i < rows; i++) { store_floats(out, (size_t)(m0 + i) * n + n0, sums + i * BLOCK_N, columns, dtype_out); }
        }
    }
}

// A strided matrix of a float dtype seen as `count` lines of `depth`: line and depth strides in elements.
typedef struct Strided {
    const uint8_t *data;
    int32_t line_stride, depth_stride;
    uint32_t dtype;
} Strided;

// Four lines that are contiguous along the depth.
INLINE void pack_lines(const Strided *s, uint32_t line, uint32_t first, uint32_t depth, float *to, uint32_t width) {
    const uint8_t *rows[4];
    for (uint32_t i = 0; i < 4; i++) {
        rows[i] = s->data + ((ptrdiff_t)(line + i) * s->line_stride + first) * (ptrdiff_t)DTYPE_BYTES(s->dtype);
    }
    uint32_t k = 0;
    for (; k + 4 <= depth; k += 4, to += 4 * width) {
        f4 a = f4_load_as(rows[0], k, s->dtype), b = f4_load_as(rows[1], k, s->dtype);
        f4 c = f4_load_as(rows[2], k, s->dtype), d = f4_load_as(rows[3], k, s->dtype);
        f4_transpose(&a, &b, &c, &d);
        f4_store(to, a), f4_store(to + width, b), f4_store(to + 2 * width, c), f4_store(to + 3 * width, d);
    }
    for (; k < depth; k++, to += width) {
        for (uint32_t i = 0; i < 4; i++) to[i] = load_float(rows[i], k, s->dtype);
    }
}

INLINE void pack_strided(const Strided *s, uint32_t line, uint32_t count, uint32_t first, uint32_t depth, float *to, uint32_t width) {
    if (count == width && s->depth_stride == 1) {
        for (uint32_t i = 0; i < width; i += 4) pack_lines(s, line + i, first, depth, to + i, width);
    } else if (count == width && s->line_stride == 1) {
        const uint8_t *data = s->data + ((ptrdiff_t)first * s->depth_stride + line) * (ptrdiff_t)DTYPE_BYTES(s->dtype);
        ptrdiff_t step = s->depth_stride * (ptrdiff_t)DTYPE_BYTES(s->dtype);
        for (uint32_t k = 0; k < depth; k++, data += step, to += width) {
            for (uint32_t i = 0; i < width; i += 4) f4_store(to + i, f4_load_as(data, i, s->dtype));
        }
    } else {
        ptrdiff_t bytes = DTYPE_BYTES(s->dtype);
        for (uint32_t k = 0; k < depth; k++, to += width) {
            ptrdiff_t element = (ptrdiff_t)line * s->line_stride + (ptrdiff_t)(first + k) * s->depth_stride;
            const uint8_t *data = s->data + element * bytes;
            for (uint32_t i = 0; i < width; i++, data += s->line_stride * bytes) { to[i] = i < count ? load_float(data, 0, s->dtype) : 0; }
        }
    }
}

static void pack_strided_a(const void *s, uint32_t line, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    pack_strided(s, line, count, first, depth, to, TILE_M);
}

#endif
