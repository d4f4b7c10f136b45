#version 460
// out[row, i] = in[row, indices[row, i]], or the index itself as uint32 when `in` is absent. indices has padded
// columns.
//
// A thread writes one element: rows * cols threads.

#define BUFFERS 3
#define PUSH SortPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_OUT = DTYPE_U32;

// Elements move as their bits, so that a NaN keeps its payload.
const uint DTYPE_BITS = DTYPE_OUT == DTYPE_F32 ? DTYPE_U32 : (DTYPE_OUT >= DTYPE_F16 ? DTYPE_U16 : DTYPE_OUT);

void main() {
    uint thread = flat_thread();
    uint row = thread / pc.p.cols;
    if (row >= pc.p.rows) return;
    uint index = U32s(pc.address[1]).v[row * pc.p.padded + thread % pc.p.cols];
    if (pc.address[0] == 0ul) U32s(pc.address[2]).v[thread] = index;
    else store_bits(pc.address[2], thread, DTYPE_BITS, load_bits(pc.address[0], row * pc.p.cols + index, DTYPE_BITS));
}
