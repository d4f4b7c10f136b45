#version 460
// out[row, i] = in[row, 0] op … op in[row, i]; EXCLUSIVE leaves in[row, i] out (the first is the identity), REVERSE
// folds from the end of the row.
//
// One workgroup a row walks it in blocks of ITEMS * THREADS: each thread folds ITEMS neighbours, the workgroup scans
// the threads' totals (Hillis and Steele, two buffers), and the block's total is carried on.

#define BUFFERS 2
#define PUSH RowsPush
#include "include/common.glsl"
#include "include/combine.h"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 3) const uint OP = OP_SUM;
layout(constant_id = 4) const uint REVERSE = 0;
layout(constant_id = 5) const uint EXCLUSIVE = 0;

const uint ITEMS = 8;

shared uint totals[2][1024];

// Where element i of the walk lies.
uint position(uint base, uint i) { return base + (REVERSE != 0u ? pc.p.cols - 1u - i : i); }

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    uint base = row * pc.p.cols;
    uint t = gl_LocalInvocationID.x;
    uint carry = identity(OP, DTYPE_IN);

    for (uint block = 0u; block < pc.p.cols; block += ITEMS * THREADS) {
        uint first = block + t * ITEMS;
        uint item[ITEMS];
        uint mine = identity(OP, DTYPE_IN);
        for (uint u = 0; u < ITEMS; u++) {
            uint i = first + u;
            item[u] = i < pc.p.cols ? load_bits(pc.address[0], position(base, i), DTYPE_IN) : identity(OP, DTYPE_IN);
            mine = combine(OP, DTYPE_IN, mine, item[u]);
        }

        barrier(); // the totals of the block before have been read
        totals[0][t] = mine;
        barrier();
        uint now = 0u;
        for (uint step = 1u; step < THREADS; step *= 2u) {
            uint sum = totals[now][t];
            if (t >= step) sum = combine(OP, DTYPE_IN, totals[now][t - step], sum);
            totals[now ^ 1u][t] = sum;
            now ^= 1u;
            barrier();
        }

        uint prefix = t == 0u ? carry : combine(OP, DTYPE_IN, carry, totals[now][t - 1u]);
        for (uint u = 0; u < ITEMS; u++) {
            uint i = first + u;
            uint after = combine(OP, DTYPE_IN, prefix, item[u]);
            if (i < pc.p.cols) { store_bits(pc.address[1], position(base, i), DTYPE_OUT, EXCLUSIVE != 0u ? prefix : after); }
            prefix = after;
        }
        carry = combine(OP, DTYPE_IN, carry, totals[now][THREADS - 1u]);
    }
}
