// matmul for few rows of a: streams b once a row, four columns (b contiguous along k) or WIDE (along n) at a time.

#include "matmul/matmul.h"

// The row of a as contiguous floats in pieces of this length.
enum { PIECE = 4096, WIDE = 32 };

typedef struct Row {
    const struct MatmulPush *p;
    const uint8_t *b;
    uint32_t dtype_b;
} Row;

// b contiguous along k: sums[j] += a . column j, for 4 columns at a time.
INLINE void dot_columns(const Row *row, const float *a, uint32_t first, uint32_t depth, uint32_t column, uint32_t count, float *sums) {
    ptrdiff_t bytes = DTYPE_BYTES(row->dtype_b), stride = row->p->b_strides[1];
    const uint8_t *b[4];
    for (uint32_t j = 0; j < 4; j++) { b[j] = row->b + ((ptrdiff_t)(column + (j < count ? j : 0)) * stride + (ptrdiff_t)first) * bytes; }
    f4 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    uint32_t k = 0;
    for (; k + 4 <= depth; k += 4) {
        f4 x = f4_load(a + k);
        s0 = f4_fma(x, f4_load_as(b[0], k, row->dtype_b), s0);
        s1 = f4_fma(x, f4_load_as(b[1], k, row->dtype_b), s1);
        s2 = f4_fma(x, f4_load_as(b[2], k, row->dtype_b), s2);
        s3 = f4_fma(x, f4_load_as(b[3], k, row->dtype_b), s3);
    }
    f4 sum = f4_sum4(s0, s1, s2, s3);
    for (; k < depth; k++) {
        for (uint32_t j = 0; j < 4; j++) sum[j] += a[k] * load_float(b[j], k, row->dtype_b);
    }
    for (uint32_t j = 0; j < count; j++) sums[j] += sum[j];
}

// b contiguous along n: sums of WIDE columns stay in registers while k advances.
INLINE void add_rows(const Row *row, const float *a, uint32_t first, uint32_t depth, uint32_t column, uint32_t count, float *sums) {
    ptrdiff_t bytes = DTYPE_BYTES(row->dtype_b), step = row->p->b_strides[0] * bytes;
    const uint8_t *b = row->b + (ptrdiff_t)first * step + column * bytes;
    if (count == WIDE) {
        f4 s[WIDE / 4];
        for (uint32_t j = 0; j < WIDE / 4; j++) s[j] = f4_load(sums + 4 * j);
        for (uint32_t k = 0; k < depth; k++, b += step) {
            f4 x = f4_splat(a[k]);
            for (uint32_t j = 0; j < WIDE / 4; j++) s[j] = f4_fma(x, f4_load_as(b, 4 * j, row->dtype_b), s[j]);
        }
        for (uint32_t j = 0; j < WIDE / 4; j++) f4_store(sums + 4 * j, s[j]);
    } else {
        for (uint32_t k = 0; k < depth; k++, b += step) {
            for (uint32_t j = 0; j < count; j++) sums[j] += a[k] * load_float(b, j, row->dtype_b);
        }
    }
}

// One row of a times columns from..to-1; `dtype_b` is a constant at every call, so that the inner loops have no branch on it.
INLINE void multiply_row(const Call *call, const Operands *o, uint32_t i, uint32_t from_column, uint32_t to_column, uint32_t dtype_b) {
    PUSH(MatmulPush);
    uint32_t dtype_a = call->spec[1], dtype_out = call->spec[3];
    ptrdiff_t a_bytes = DTYPE_BYTES(dtype_a);
    Row row = {p, o->b, dtype_b};
    float a[PIECE], sums[WIDE];
    bool along_k = p->b_strides[0] == 1 && p->n > 1;
    uint32_t width = along_k ? 4 : WIDE;
    // Pieces of k run outside where one piece is the rule; longer rows convert a piece again for every group of
    // columns.
    for (uint32_t column = from_column; column < to_column; column += width) {
        uint32_t count = min_u32(width, to_column - column);
        __builtin_memset(sums, 0, sizeof sums);
        for (uint32_t first = 0; first < p->k; first += PIECE) {
            uint32_t depth = min_u32(PIECE, p->k - first);
            if (column == from_column || p->k > PIECE) {
                ptrdiff_t step = p->a_strides[1] * a_bytes;
                const uint8_t *from = o->a + (ptrdiff_t)i * p->a_strides[0] * a_bytes + (ptrdiff_t)first * step;
                if (p->a_strides[1] == 1) load_run(a, from, 0, depth, dtype_a);
                else
                    for (uint32_t k = 0; k < depth; k++) a[k] = load_float(from + (ptrdiff_t)k * step, 0, dtype_a);
            }
            if (along_k) dot_columns(&row, a, first, depth, column, count, sums);
            else add_rows(&row, a, first, depth, column, count, sums);
        }
        store_floats(o->out, (size_t)i * p->n + column, sums, count, dtype_out);
    }
}

// Whether rows stream b; else the product goes through the packed core.
INLINE bool streams(const Call *call) {
    PUSH(MatmulPush);
    return DTYPE_IS_FLOAT(call->spec[3]) && p->m <= 2 && (p->b_strides[0] == 1 || p->b_strides[1] == 1);
}

INLINE uint32_t column_grain(const struct MatmulPush *p) { return chunk_grain(p->n, p->k, 2 * WIDE); }

// A chunk is some columns of a row, or a block of a product.
uint32_t chunks_matvec(const Call *call) {
    PUSH(MatmulPush);
    return p->batch * (streams(call) ? p->m * chunk_count(p->n, column_grain(p)) : matmul_blocks(call));
}

void k_matvec(const Call *call, uint32_t first, uint32_t last) {
    PUSH(MatmulPush);
    if (!streams(call)) {
        matmul_run(call, first, last);
        return;
    }
    uint32_t dtype_b = call->spec[2], grain = column_grain(p), cuts = chunk_count(p->n, grain);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t row = chunk / cuts, from = chunk % cuts * grain, to = chunk_end(chunk % cuts + 1, grain, p->n);
        Operands o = matmul_operands(call, row / p->m);
        if (dtype_b == DTYPE_F32) multiply_row(call, &o, row % p->m, from, to, DTYPE_F32);
        else if (dtype_b == DTYPE_BF16) multiply_row(call, &o, row % p->m, from, to, DTYPE_BF16);
        else multiply_row(call, &o, row % p->m, from, to, DTYPE_F16);
    }
}
