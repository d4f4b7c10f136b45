// Quantized products of several rows: dequantizes a panel of w once per block of rows and hands it to the dense core.

#ifndef VKMX_WASM_QUANTIZED_PRODUCT_H
#define VKMX_WASM_QUANTIZED_PRODUCT_H
#include "matmul/gemm.h"
#include "quantized/quantized.h"

// w (n, k): eight rows of w are eight columns of the product. Depths are multiples of 32, since groups are.
static void pack_transposed(const void *w, uint32_t column, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    float rows[TILE_N][BLOCK_K];
    for (uint32_t i = 0; i < TILE_N; i++) { dequantize_floats(w, column + (i < count ? i : 0), first, depth, rows[i]); }
    for (uint32_t k = 0; k < depth; k += 4) {
        for (uint32_t i = 0; i < TILE_N; i += 4) {
            f4 a = f4_load(rows[i] + k), b = f4_load(rows[i + 1] + k);
            f4 c = f4_load(rows[i + 2] + k), d = f4_load(rows[i + 3] + k);
            f4_transpose(&a, &b, &c, &d);
            float *corner = to + k * TILE_N + i;
            f4_store(corner, a), f4_store(corner + TILE_N, b);
            f4_store(corner + 2 * TILE_N, c), f4_store(corner + 3 * TILE_N, d);
        }
    }
}

// w (k, n): n is a multiple of 32, so a panel is eight whole codes of one group in every row.
static void pack_plain(const void *w, uint32_t column, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    const Quantized *q = w;
    (void)count;
    if (q->mode != MODE_AFFINE) {
        for (uint32_t k = first; k < first + depth; k++, to += TILE_N) eight_numbers(q, (size_t)k * q->columns + column, to);
        return;
    }
    for (uint32_t k = first; k < first + depth; k++, to += TILE_N) {
        size_t element = (size_t)k * q->columns + column;
        f4 scale, bias;
        load_group(q, element / q->group, &scale, &bias);
        unpack8(q->codes + element / 8 * q->bits, q->bits, to);
        f4_store(to, f4_fma(f4_load(to), scale, bias));
        f4_store(to + 4, f4_fma(f4_load(to + 4), scale, bias));
    }
}

// The matrices of a product, of which matrix `left` of x, `right` of w and `to` of the result take part.
typedef struct QuantizedGemm {
    Gemm g;
    Strided x;
    Quantized w;
} QuantizedGemm;

INLINE void quantized_gemm(QuantizedGemm *q, const Call *call, uint32_t mode, bool transpose, uint32_t m, size_t left, uint32_t right,
                           size_t to) {
    PUSH(QuantizedMatmulPush);
    uint32_t dtype_x = call->spec[3], dtype_out = call->spec[5];
    Quantized stack = {call->buffer[1], call->buffer[2], call->buffer[3], transpose ? p->k : p->n,
                       call->spec[1],   call->spec[2],   call->spec[4],   mode};
    q->w = quantized_matrix(&stack, transpose ? p->n : p->k, right);
    q->x = (Strided){call->buffer[0] + left * m * p->k * DTYPE_BYTES(dtype_x), (int32_t)p->k, 1, dtype_x};
    uint8_t *out = call->buffer[4] + to * m * p->n * DTYPE_BYTES(dtype_out);
    q->g = (Gemm){m, p->n, p->k, pack_strided_a, transpose ? pack_transposed : pack_plain, &q->x, &q->w, out, p->n, dtype_out};
}

// The call of quantized_matvec and quantized_matmul as one product a batch row; with one w for all, rows of all batches are one.
INLINE uint32_t products_of(const struct QuantizedMatmulPush *p) { return p->w_batch == 1 ? 1 : p->batch; }
INLINE uint32_t product_rows(const struct QuantizedMatmulPush *p) { return p->w_batch == 1 ? p->batch * p->m : p->m; }

// Blocks of such a product, and all of them.
INLINE uint32_t blocks_of_product(const struct QuantizedMatmulPush *p) {
    Gemm g = {.m = product_rows(p), .n = p->n};
    return gemm_blocks(&g);
}
INLINE uint32_t product_chunks(const struct QuantizedMatmulPush *p) { return products_of(p) * blocks_of_product(p); }

// Those blocks through the dense core.
INLINE void quantized_products(const Call *call, uint32_t mode, bool transpose, uint32_t first, uint32_t last) {
    PUSH(QuantizedMatmulPush);
    uint32_t blocks = blocks_of_product(p);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t i = chunk / blocks;
        QuantizedGemm q;
        quantized_gemm(&q, call, mode, transpose, product_rows(p), i, i, i);
        gemm_block(&q.g, chunk % blocks);
    }
}

// One row of x times n rows of w, which streams. Unless it has to be `exact`, x may be rounded to 28 bits a group. At most LONGEST_ROW
// columns.
enum { LONGEST_ROW = 16384 };
void quantized_row(const Quantized *w, uint32_t n, bool exact, const uint8_t *x, uint32_t dtype_x, uint8_t *out, uint32_t dtype_out);

// The same times some matrices of one form, each with a result.
void quantized_row_of_many(const Quantized *w, uint32_t matrices, uint32_t n, bool exact, const uint8_t *x, uint32_t dtype_x,
                           uint8_t *const *out, uint32_t dtype_out);

// The call of quantized_matvec and quantized_matmul row by row of x, x @ w.T. A chunk is some rows of w.
uint32_t row_chunks(const struct QuantizedMatmulPush *p);
void quantized_rows(const Call *call, uint32_t mode, bool exact, uint32_t first, uint32_t last);

#endif
