#version 460
// quantized_matvec: out[batch][m][n] = sum over k of x[batch][m][k] * w[n][k] for few rows m; w (n, k) packed along k.
//
// x begins at a multiple of 16 bytes. A workgroup makes COLUMNS outputs of ROWS rows at a time, its threads striding
// along k. Codes are read and unpacked once for ROWS rows (few_rows.glsl). Workgroups: batch * ceil(n / COLUMNS),
// folded over (x, y).
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
#include "ops/matmul/few_rows.glsl"
#include "row_products.glsl"
#include "ops/indexing/chosen.glsl"

void main() {
    uint across = (pc.p.n + COLUMNS - 1u) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.batch * across) return;
    uint batch = group / across, column0 = group % across * COLUMNS;
    uint64_t x_address = pc.address[0] + uint64_t(left_of(batch)) * (pc.p.m * pc.p.k * DTYPE_BYTES(DTYPE_X));
    Operand x = operand_of(x_address, DTYPE_X, int(pc.p.k), 1, pc.p.m, pc.p.k, true);
    Matrix w = matrix_of(pc.address[1], pc.address[2], pc.address[3], uint64_t(right_of(batch)) * pc.p.n * pc.p.k);
    uint64_t result = pc.address[4] + uint64_t(batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    for (uint row0 = 0; row0 < pc.p.m; row0 += ROWS) {
        multiply_rows(x, w, row0, column0);
        store_sums(result, DTYPE_OUT, row0, column0, pc.p.m, pc.p.n);
    }
}
