#version 460
// keys[row, i], indices[row, i] = (order-preserving uint of in[row, i], i), padded with (largest key, i) to a power of
// two. Sorted as pairs they order the row stably, NaN after all numbers and the padding last.
//
// A thread makes one pair: rows * padded threads.

#define BUFFERS 3
#define PUSH SortPush
#include "include/common.glsl"
#include "include/combine.h"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;

void main() {
    uint thread = flat_thread();
    uint row = thread / pc.p.padded;
    uint i = thread % pc.p.padded;
    if (row >= pc.p.rows) return;
    uint key = 0xffffffffu;
    if (i < pc.p.cols) key = ordered_key(load_bits(pc.address[0], row * pc.p.cols + i, DTYPE_IN), DTYPE_IN);
    U32s(pc.address[1]).v[thread] = key;
    U32s(pc.address[2]).v[thread] = i;
}
