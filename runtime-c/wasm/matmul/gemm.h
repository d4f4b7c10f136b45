// The dense core of every product: out (m, n) = a (m, k) * b (k, n) in float32 over packed blocks.
//
// Packing brings any stride, dtype or quantization into one layout. a becomes tiles of 4 rows (k, 4), b panels of 8
// columns (k, 8). The innermost kernel keeps a 4 x 8 tile of sums in registers; larger tiles do not fit. One block of
// sums stays in cache while k advances. Blocks are independent of each other, so threads share them. Every sum is made
// in one block in the order of k, so no result depends on how a product is cut.

#ifndef VKMX_WASM_GEMM_H
#define VKMX_WASM_GEMM_H
#include "simd.h"

enum { TILE_M = 4, TILE_N = 8, BLOCK_M = 144, BLOCK_N = 128, BLOCK_K = 256 };

// Writes rows row..row+3 (columns column..column+7), depths first..first+depth-1, as to[depth][4] (to[depth][8]); what
// lies beyond `count` rows (columns) is 0. `column` is a multiple of 8, `first` and all but the last `depth` of
// BLOCK_K.
typedef void Pack(const void *matrix, uint32_t row, uint32_t count, uint32_t first, uint32_t depth, float *to);

// A product: how its operands are packed and where it goes, rows of the result `out_stride` elements apart.
typedef struct Gemm {
    uint32_t m, n, k;
    Pack *pack_a, *pack_b;
    const void *a, *b;
    uint8_t *out;
    size_t out_stride;
    uint32_t dtype_out;
} Gemm;

static void multiply_tile(const float *a, const float *b, uint32_t depth, float *c) {
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3)
#define LOAD(i) f4 low##i = f4_load(c + (i) * BLOCK_N), high##i = f4_load(c + (i) * BLOCK_N + 4);
#define STEP(i) \
    x = f4_splat(a[i]); \
    low##i = f4_fma(x, b0, low##i); \
    high##i = f4_fma(x, b1, high##i);
#define STORE(i) f4_store(c + (i) * BLOCK_N, low##i), f4_store(c + (i) * BLOCK_N + 4, high##i);
    EACH_ROW(LOAD)
    // Unrolled loops run at half the speed in V8, whose registers then no longer keep all sums.
#pragma clang loop unroll(disable)
    for (uint32_t k = 0; k < depth; k++, a += TILE_M, b += TILE_N) {
        f4 b0 = f4_load(b), b1 = f4_load(b + 4), x;
        EACH_ROW(STEP)
    }
    EACH_ROW(STORE)
#undef EACH_ROW
#undef LOAD
#undef STEP
#undef STORE
}

// Rows of a block: about equal ones, whole tiles.
INLINE uint32_t block_rows(const Gemm *g) {
    uint32_t blocks = (g->m + BLOCK_M - 1) / BLOCK_M;
    return (g->m + blocks * TILE_M - 1) / (blocks * TILE_M) * TILE_M;
}

INLINE uint32_t gemm_blocks(const Gemm *g) {
    if (g->m == 0 || g->n == 0) return 0;
    uint32_t rows = block_rows(g);
    return (g->m + rows - 1) / rows * ((g->n + BLOCK_N - 1) / BLOCK_N);
}

static inline void gemm_block(const Gemm *g, uint32_t block) {
    float sums[BLOCK_M * BLOCK_N], a_block[BLOCK_M * BLOCK_K], b_panel[BLOCK_K * TILE_N];
    uint32_t across = (g->n + BLOCK_N - 1) / BLOCK_N, step = block_rows(g);
    uint32_t m0 = block / across * step, n0 = block % across * BLOCK_N;
    uint32_t rows = min_u32(step, g->m - m0), columns = min_u32(BLOCK_N, g->n - n0);
    __builtin_memset(sums, 0, (size_t)((rows + TILE_M - 1) / TILE_M * TILE_M) * BLOCK_N * sizeof(float));
    for (uint32_t k0 = 0; k0 < g->k; k0 += BLOCK_K) {
        uint32_t depth = min_u32(BLOCK_K, g->k - k0);
        for (uint32_t i = 0; i < rows; i += TILE_M) {
            g->pack_a(g->a, m0 + i, min_u32(TILE_M, rows - i), k0, depth, a_block + i * BLOCK_K);
        }
        for (uint32_t j = 0; j < columns; j += TILE_N) {
            g->pack_b(g->b, n0 + j, min_u32(TILE_N, columns - j), k0, depth, b_panel);
            for (uint32_t i = 0; i < rows; i += TILE_M) { multiply_tile(a_block + i * BLOCK_K, b_panel, depth, sums + i * BLOCK_N + j); }
        }
    }
    for (uint32_t i = 0; i < rows; i++) {
        store_floats(g->out, (size_t)(m0 + i) * g->out_stride + n0, sums + i * BLOCK_N, columns, g->dtype_out);
    }
}

INLINE void gemm(const Gemm *g) {
    for (uint32_t block = 0, blocks = gemm_blocks(g); block < blocks; block++) gemm_block(g, block);
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
    const ptrdiff_t bytes = DTYPE_BYTES(s->dtype), line_step = s->line_stride * bytes, depth_step = s->depth_stride * bytes;
    const uint8_t *data = s->data + (ptrdiff_t)line * line_step + (ptrdiff_t)first * depth_step;
    const uint32_t fours = width / 4 * 4;
    uint32_t done = 0; // lines that went by fours
    if (count == width && s->depth_stride == 1) {
        for (; done < fours; done += 4) pack_lines(s, line + done, first, depth, to + done, width);
    } else if (count == width && s->line_stride == 1) {
        const uint8_t *row = data;
        for (uint32_t k = 0; k < depth; k++, row += depth_step) {
            for (uint32_t i = 0; i < fours; i += 4) f4_store(to + k * width + i, f4_load_as(row, i, s->dtype));
        }
        done = fours;
    }
    if (done == width) return;
    for (uint32_t k = 0; k < depth; k++, data += depth_step, to += width) {
        for (uint32_t i = done; i < width; i++) to[i] = i < count ? load_float(data + i * line_step, 0, s->dtype) : 0;
    }
}

static inline void pack_strided_a(const void *s, uint32_t line, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    pack_strided(s, line, count, first, depth, to, TILE_M);
}

#endif
