#version 460
// matvec: matmul for few rows of a (m <= 8 or so): streams b once for ROWS rows at a time.
//
// A workgroup makes COLUMNS neighbouring columns, its threads lie along k (few_rows.glsl). ALONG_K 1: b is contiguous along k
// (weights stored (n, k)), a thread reads eights of k. ALONG_K 0, COLUMNS 8: a thread reads eights of columns. Workgroups:
// batch * ceil(n / COLUMNS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH MatmulPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_A = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_B = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint ROWS = 1;
layout(constant_id = 5) const uint COLUMNS = 4;
layout(constant_id = 6) const uint ALONG_K = 1;

#define SUM_FLOAT DTYPE_IS_FLOAT(DTYPE_OUT)
#include "include/vec8.glsl"
#include "matmul.glsl"
#include "few_rows.glsl"

// Rows and columns beyond the last repeat it; their sums are not stored.
void add_along_k(Operand a, Operand b, uint row0, uint column0) {
    uint last_row = pc.p.m - 1u, last_column = pc.p.n - 1u, whole = a.wide && b.wide ? pc.p.k / 8u * 8u : 0u;
    for (uint depth = gl_LocalInvocationID.x * 8u; depth < whole; depth += THREADS * 8u) {
        Vec8 rows[ROWS], columns[COLUMNS];
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            columns[j] = load_eight(b, DTYPE_B, min(column0 + j, last_column), depth);
        [[unroll]] for (uint i = 0; i < ROWS; i++)
            rows[i] = load_eight(a, DTYPE_A, min(row0 + i, last_row), depth);
        [[unroll]] for (uint i = 0; i < ROWS; i++)
            rows[i] = unpacked(rows[i], DTYPE_A);
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            add_vec8s(rows, unpacked(columns[j], DTYPE_B), j);
    }
    for (uint depth = whole + gl_LocalInvocationID.x; depth < pc.p.k; depth += THREADS) {
        uint x[ROWS];
        [[unroll]] for (uint i = 0; i < ROWS; i++)
            x[i] = a_bits(min(row0 + i, last_row), depth);
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            uint w = b_bits(depth, min(column0 + j, last_column));
            [[unroll]] for (uint i = 0; i < ROWS; i++)
                sums[i * COLUMNS + j] = multiply_add(x[i], w, sums[i * COLUMNS + j]);
        }
    }
}

void add_along_n(Operand b, uint row0, uint column0) {
    for (uint depth = gl_LocalInvocationID.x; depth < pc.p.k; depth += THREADS) {
        Vec8 w = unpacked(fetch_vec8(b, DTYPE_B, column0, depth), DTYPE_B);
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            uint x = a_bits(min(row0 + i, pc.p.m - 1u), depth);
            [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
                sums[i * COLUMNS + j] = multiply_add(x, j < 4u ? w.first[j % 4u] : w.second[j % 4u], sums[i * COLUMNS + j]);
            }
        }
    }
}

void main() {
    uint across = (pc.p.n + COLUMNS - 1u) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.batch * across) return;
    find_operands(group / across);
    uint column0 = group % across * COLUMNS;
    Operand a = operand_of(operand_a, DTYPE_A, pc.p.a_strides[0], pc.p.a_strides[1], pc.p.m, pc.p.k, true);
    Operand b = operand_of(operand_b, DTYPE_B, pc.p.b_strides[1], pc.p.b_strides[0], pc.p.n, pc.p.k, ALONG_K == 1);
    for (uint row0 = 0; row0 < pc.p.m; row0 += ROWS) {
        [[unroll]] for (uint i = 0; i < VALUES; i++)
            sums[i] = 0;
        if (ALONG_K == 1) add_along_k(a, b, row0, column0);
        else add_along_n(b, row0, column0);
        store_sums(operand_out, DTYPE_OUT, row0, column0, pc.p.m, pc.p.n);
    }
}
