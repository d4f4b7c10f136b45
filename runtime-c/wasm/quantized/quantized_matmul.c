// Quantized product of many rows, x @ w.T or x @ w, and of few where activations are not to be rounded.

#include "quantized/quantized_product.h"

// Rows up to which w is streamed as it lies.
enum { FEW_ROWS = 3 };

// x @ w, the columns of the result from `first` to the end of their block: rows of w times numbers of x add up.
static void few_rows_plain(const QuantizedGemm *q, uint32_t first) {
    const Gemm *g = &q->g;
    uint32_t count = min_u32(BLOCK_N, g->n - first);
    float sums[FEW_ROWS][BLOCK_N] = {{0}}, w[BLOCK_N];
    for (uint32_t k = 0; k < g->k; k++) {
        dequantize_floats(&q->w, k, first, count, w);
        for (uint32_t m = 0; m < g->m; m++) {
            f4 x = f4_splat(load_float(q->x.data, (size_t)m * g->k + k, q->x.dtype));
            for (uint32_t n = 0; n < count; n += 4) f4_store(sums[m] + n, f4_fma(x, f4_load(w + n), f4_load(sums[m] + n)));
        }
    }
    for (uint32_t m = 0; m < g->m; m++) store_floats(g->out, (size_t)m * g->n + first, sums[m], count, g->dtype_out);
}

// How a call is computed: row by row, a few rows at once, or through the dense core. The first is for one row and a transposed w.
typedef enum Way { BY_ROWS, FEW, CORE } Way;

INLINE Way way_of(const Call *call) {
    PUSH(QuantizedMatmulPush);
    if (call->spec[6] != 0) return p->k <= LONGEST_ROW && p->m <= 1 ? BY_ROWS : CORE;
    return product_rows(p) > FEW_ROWS ? CORE : FEW;
}

INLINE uint32_t column_blocks(const struct QuantizedMatmulPush *p) { return (p->n + BLOCK_N - 1) / BLOCK_N; }

uint32_t chunks_quantized_matmul(const Call *call) {
    PUSH(QuantizedMatmulPush);
    Way way = way_of(call);
    return way == BY_ROWS ? row_chunks(p) : way == FEW ? products_of(p) * column_blocks(p) : product_chunks(p);
}

void k_quantized_matmul(const Call *call, uint32_t first, uint32_t last) {
    PUSH(QuantizedMatmulPush);
    uint32_t mode = call->spec[13];
    Way way = way_of(call);
    if (way == BY_ROWS) quantized_rows(call, mode, true, first, last);
    if (way == CORE) quantized_products(call, mode, call->spec[6] != 0, first, last);
    if (way != FEW) return;
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t i = chunk / column_blocks(p);
        QuantizedGemm q;
        quantized_gemm(&q, call, mode, false, product_rows(p), i, i, i);
        few_rows_plain(&q, chunk % column_blocks(p) * BLOCK_N);
    }
}

// ---- matrices of x and w that indices choose ------------------------------------------------------------------------

static uint32_t blocks_of(const Call *call) {
    PUSH(QuantizedMatmulPush);
    Gemm g = {.m = p->m, .n = p->n};
    return gemm_blocks(&g);
}

uint32_t chunks_gathered_quantized_matmul(const Call *call) {
    PUSH(QuantizedMatmulPush);
    return p->batch * blocks_of(call);
}

// x @ w.T, those columns: each row of x by itself.
static void few_rows_transposed(const QuantizedGemm *q, uint32_t first) {
    const Gemm *g = &q->g;
    uint32_t count = min_u32(BLOCK_N, g->n - first);
    Quantized w = quantized_matrix(&q->w, 1, first);
    for (uint32_t m = 0; m < g->m; m++) {
        const uint8_t *x = q->x.data + (size_t)m * g->k * DTYPE_BYTES(q->x.dtype);
        quantized_row(&w, count, false, x, q->x.dtype, g->out + ((size_t)m * g->n + first) * DTYPE_BYTES(g->dtype_out), g->dtype_out);
    }
}

void k_gathered_quantized_matmul(const Call *call, uint32_t first, uint32_t last) {
    PUSH(QuantizedMatmulPush);
    uint32_t blocks = blocks_of(call);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t batch = chunk / blocks;
        uint32_t left = min_u32(load_bits(call->buffer[5], batch, DTYPE_U32), p->x_batch - 1);
        uint32_t right = min_u32(load_bits(call->buffer[6], batch, DTYPE_U32), p->w_batch - 1);
        QuantizedGemm q;
        quantized_gemm(&q, call, call->spec[13], call->spec[6] != 0, p->m, left, right, batch);
        bool transpose = call->spec[6] != 0, few = p->m <= FEW_ROWS && (!transpose || p->k <= LONGEST_ROW);
        if (!few) gemm_block(&q.g, chunk % blocks);
        else if (transpose) few_rows_transposed(&q, chunk % blocks * BLOCK_N);
        else few_rows_plain(&q, chunk % blocks * BLOCK_N);
    }
}
