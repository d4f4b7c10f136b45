#version 460
// The gradient of the weight of a norm, the first of two stages. out[part, i] = sum over the rows of a part of
// cotangent[row, i] * n[row, i]. n is the row after its norm without weight (norm_vjp.comp). The second stage adds the
// parts up. Every sum is made by one thread in the order of the rows.
//
// A workgroup has a part and a run of RUN * THREADS columns. It takes the sums of a row, then adds that row to the RUN
// columns of each thread, which stay in registers. parts * ceil(cols / (RUN * THREADS)) workgroups.

#define BUFFERS 3
#define PUSH NormWeightPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_C = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint CENTERED = 0;

const uint RUN = NORM_WEIGHT_COLUMNS;

void main() {
    uint t = gl_LocalInvocationID.x, cols = pc.p.cols;
    uint runs = (cols + RUN * THREADS - 1u) / (RUN * THREADS), group = flat_workgroup();
    uint part = group / runs, first = group % runs * RUN * THREADS;
    if (part >= pc.p.parts) return;
    uint each = (pc.p.rows + pc.p.parts - 1u) / pc.p.parts;
    uint from = min(part * each, pc.p.rows), to = min(from + each, pc.p.rows);

    float sums[RUN];
    [[unroll]] for (uint u = 0; u < RUN; u++)
        sums[u] = 0.0;
    for (uint row = from; row < to; row++) {
        uint64_t x_row = pc.address[0] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_X);
        uint64_t c_row = pc.address[1] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_C);
        float mean = 0.0, squares = 0.0;
        if (CENTERED != 0u) {
            for (uint i = t; i < cols; i += THREADS) mean += load_float(x_row, i, DTYPE_X);
            mean = workgroup_sum(mean) / float(cols);
        }
        for (uint i = t; i < cols; i += THREADS) {
            float d = load_float(x_row, i, DTYPE_X) - mean;
            squares += d * d;
        }
        float s = inversesqrt(workgroup_sum(squares) / float(cols) + pc.p.eps);
        [[unroll]] for (uint u = 0; u < RUN; u++) {
            uint i = first + u * THREADS + t;
            if (i < cols) sums[u] += load_float(c_row, i, DTYPE_C) * ((load_float(x_row, i, DTYPE_X) - mean) * s);
        }
    }
    [[unroll]] for (uint u = 0; u < RUN; u++) {
        uint i = first + u * THREADS + t;
        if (i < cols) store_float(pc.address[2] + uint64_t(part) * cols * DTYPE_BYTES(DTYPE_OUT), i, DTYPE_OUT, sums[u]);
    }
}
