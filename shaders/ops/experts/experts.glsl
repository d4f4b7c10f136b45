// Products of a row with a matrix of an expert, over few_rows.glsl: quantized ones, or dense ones (MODE_DENSE, of
// DTYPE_SCALES). One row at a time, COLUMNS columns of a workgroup.

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 6) const uint COLUMNS = 4;
layout(constant_id = 7) const uint MODE = MODE_AFFINE;
layout(constant_id = 8) const uint HAS_BIAS = 0;

const uint ROWS = 1;
#define SUM_FLOAT true
#include "include/vec8.glsl"
#include "ops/quantized/quantized.glsl"
#include "ops/quantized/codes.glsl"
#include "ops/matmul/few_rows.glsl"
#include "ops/quantized/row_products.glsl"

// The choices of a row are the numbers of its experts, as floats, and then their weights.
uint expert_of(uint64_t choice, uint row, uint place) {
    return min(uint(load_float(choice, row * 2u * pc.p.chosen + place, DTYPE_F32)), pc.p.experts - 1u);
}
float weight_of(uint64_t choice, uint row, uint place) {
    return load_float(choice, row * 2u * pc.p.chosen + pc.p.chosen + place, DTYPE_F32);
}

void multiply_dense(Operand x, Operand w, uint column0) {
    uint whole = x.wide && w.wide ? pc.p.k / 8u * 8u : 0u, last = pc.p.n - 1u;
    for (uint depth = gl_LocalInvocationID.x * 8u; depth < whole; depth += THREADS * 8u) {
        Vec8 rows[ROWS], columns[COLUMNS];
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            columns[j] = load_eight(w, DTYPE_SCALES, min(column0 + j, last), depth);
        rows[0] = unpacked(load_eight(x, DTYPE_X, 0, depth), DTYPE_X);
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            add_vec8s(rows, unpacked(columns[j], DTYPE_SCALES), j);
    }
    for (uint depth = whole + gl_LocalInvocationID.x; depth < pc.p.k; depth += THREADS) {
        uint a = load_bits(x.address, depth, DTYPE_X);
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            uint at = min(column0 + j, last) * pc.p.k + depth;
            sums[j] = multiply_add(a, load_bits(w.address, at, DTYPE_SCALES), sums[j]);
        }
    }
}

// Row number `index` of x, and the matrix of an expert.
Operand row_of(uint64_t x, uint index) {
    return operand_of(x + uint64_t(index) * (pc.p.k * DTYPE_BYTES(DTYPE_X)), DTYPE_X, int(pc.p.k), 1, 1, pc.p.k, true);
}
Matrix expert_matrix(uint64_t words, uint64_t scales, uint64_t biases, uint expert) {
    return matrix_of(words, scales, biases, uint64_t(expert) * pc.p.n * pc.p.k);
}
Operand expert_numbers(uint64_t numbers, uint expert) {
    uint64_t first = numbers + uint64_t(expert) * pc.p.n * pc.p.k * DTYPE_BYTES(DTYPE_SCALES);
    return operand_of(first, DTYPE_SCALES, int(pc.p.k), 1, pc.p.n, pc.p.k, true);
}

// Sets the sums of row number `index` of x times columns column0.. of an expert's matrix.
void multiply_expert(uint64_t x, uint index, uint64_t words, uint64_t scales, uint64_t biases, uint expert, uint column0) {
    if (MODE != MODE_DENSE) {
        multiply_rows(row_of(x, index), expert_matrix(words, scales, biases, expert), 0, column0);
        return;
    }
    clear_sums();
    multiply_dense(row_of(x, index), expert_numbers(words, expert), column0);
}
