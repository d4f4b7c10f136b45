#version 460
// quantized_matvec: out[batch][m][n] = sum over k of x[batch][m][k] * w[n][k] for few rows m; w (n, k) packed along k.
//
// x begins at a multiple of 16 bytes. A workgroup makes COLUMNS outputs of ROWS rows at a time, its threads striding along k in eights: codes are read and
// dequantized once for ROWS rows (few_rows.glsl). Workgroups: batch * ceil(n / COLUMNS), folded over (x, y).
//
// gathered_quantized_matvec (GATHERED): the matrices of x and w of a batch row are those that `left` and `right` name.

#extension GL_GOOGLE_include_directive : require
#ifdef GATHERED
#define BUFFERS 7
#else
#define BUFFERS 5
#endif
#define PUSH QuantizedMatmulPush
#include "include/common.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 6) const uint ROWS = 1;
layout(constant_id = 7) const uint COLUMNS = 4;
layout(constant_id = 8) const uint MODE = MODE_AFFINE;

#define SUM_FLOAT true
#include "include/vec8.glsl"
#include "quantized.glsl"
#include "codes.glsl"
#include "few_rows.glsl"
#include "chosen.glsl"

void main() {
    uint across = (pc.p.n + COLUMNS - 1u) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.batch * across) return;
    uint batch = group / across, column0 = group % across * COLUMNS;
    uint64_t x_address = pc.address[0] + uint64_t(left_of(batch)) * (pc.p.m * pc.p.k * DTYPE_BYTES(DTYPE_X));
    Operand x = operand_of(x_address, DTYPE_X, int(pc.p.k), 1, pc.p.m, pc.p.k, true);
    Matrix w = matrix_of(pc.address[1], pc.address[2], pc.address[3], uint64_t(right_of(batch)) * pc.p.n * pc.p.k);
    uint64_t result = pc.address[4] + uint64_t(batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    for (uint row0 = 0; row0 < pc.p.m; row0 += ROWS) {
        [[unroll]] for (uint i = 0; i < VALUES; i++)
            sums[i] = 0;
        for (uint depth = gl_LocalInvocationID.x * 8u; depth < pc.p.k; depth += THREADS * 8u) {
            Codes codes[COLUMNS];
            Vec8 rows[ROWS];
            [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                codes[j] = codes_at(w, min(column0 + j, pc.p.n - 1u), pc.p.k, depth);
            [[unroll]] for (uint i = 0; i < ROWS; i++)
                rows[i] = load_eight(x, DTYPE_X, min(row0 + i, pc.p.m - 1u), depth);
            [[unroll]] for (uint i = 0; i < ROWS; i++)
                rows[i] = unpacked(rows[i], DTYPE_X);
            [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                add_vec8s(rows, dequantized(codes[j]), j);
        }
        store_sums(result, DTYPE_OUT, row0, column0, pc.p.m, pc.p.n);
    }
}
