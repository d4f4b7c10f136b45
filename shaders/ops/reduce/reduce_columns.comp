#version 460
// out[part, batch, column] = in[batch, from, column] op in[batch, from + 1, column] op … over the rows of a part. It
// reduces along an axis that is not the last one. Several parts make more workgroups where columns are few; the same
// kernel folds them.
//
// LANES adjacent threads have four columns each. THREADS / LANES lines of them take every so many rows, four rows under
// way at a time. A tree folds the lines.

#define BUFFERS 2
#define PUSH ReduceColumnsPush
#include "include/common.glsl"
#include "include/combine.h"
#include "include/quad.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 3) const uint OP = OP_SUM;
layout(constant_id = 4) const uint LANES = 1;

const uint ROWS = 4u;
const bool IS_LOGICAL = OP == OP_ALL || OP == OP_ANY;

shared uvec4 lines[THREADS];

uvec4 op4(uvec4 a, uvec4 b) {
    [[unroll]] for (uint e = 0; e < 4u; e++)
        a[e] = combine(OP, DTYPE_IN, a[e], b[e]);
    return a;
}

void main() {
    uint t = gl_LocalInvocationID.x, lane = t % LANES, line = t / LANES, step = THREADS / LANES;
    uint blocks = (pc.p.columns + 4u * LANES - 1u) / (4u * LANES);
    uint group = flat_workgroup();
    uint column = 4u * (group % blocks * LANES + lane);
    uint batch = group / blocks % pc.p.batches, part = group / blocks / pc.p.batches;
    if (part >= pc.p.parts) return;

    uint each = (pc.p.rows + pc.p.parts - 1u) / pc.p.parts;
    uint from = part * each, to = min(from + each, pc.p.rows);
    uint64_t row_bytes = uint64_t(int64_t(pc.p.row_stride) * int64_t(DTYPE_BYTES(DTYPE_IN)));
    int64_t first = int64_t(batch) * int64_t(pc.p.batch_stride) + int64_t(column);
    uint64_t base = pc.address[0] + uint64_t(first * int64_t(DTYPE_BYTES(DTYPE_IN)));
    uint columns = column < pc.p.columns ? min(4u, pc.p.columns - column) : 0u; // of this thread
    bool whole = columns == 4u && quad_aligned(base, DTYPE_IN) && (pc.p.row_stride & 3) == 0;

    uvec4 folded[ROWS];
    [[unroll]] for (uint u = 0; u < ROWS; u++)
        folded[u] = uvec4(identity(OP, DTYPE_IN));
    for (uint row = from + line; row < to; row += ROWS * step) {
        uvec4 loaded[ROWS];
        if (whole) {
            [[unroll]] for (uint u = 0; u < ROWS; u++)
                loaded[u] = load_quad_bits(base + uint64_t(min(row + u * step, to - 1u)) * row_bytes, DTYPE_IN);
        } else {
            [[unroll]] for (uint u = 0; u < ROWS; u++) {
                uint64_t address = base + uint64_t(min(row + u * step, to - 1u)) * row_bytes;
                [[unroll]] for (uint e = 0; e < 4u; e++)
                    loaded[u][e] = e < columns ? load_bits(address, e, DTYPE_IN) : 0u;
            }
        }
        [[unroll]] for (uint u = 0; u < ROWS; u++) {
            if (row + u * step >= to) continue;
            if (IS_LOGICAL) {
                [[unroll]] for (uint e = 0; e < 4u; e++)
                    loaded[u][e] = truth(loaded[u][e], DTYPE_IN);
            }
            folded[u] = op4(folded[u], loaded[u]);
        }
    }
    lines[t] = op4(op4(folded[0], folded[1]), op4(folded[2], folded[3]));
    barrier();
    for (uint n = step; n > 1u;) {
        uint keep = (n + 1u) / 2u;
        if (line < n - keep) lines[t] = op4(lines[t], lines[t + keep * LANES]);
        n = keep;
        barrier();
    }

    if (line != 0u || columns == 0u) return;
    uint64_t at = (uint64_t(part) * pc.p.batches + batch) * pc.p.columns + column;
    uint64_t out_address = pc.address[1] + at * DTYPE_BYTES(DTYPE_OUT);
    if (columns == 4u && quad_aligned(out_address, DTYPE_OUT)) store_quad_bits(out_address, DTYPE_OUT, lines[t]);
    else
        for (uint e = 0; e < columns; e++) store_bits(out_address, e, DTYPE_OUT, lines[t][e]);
}
