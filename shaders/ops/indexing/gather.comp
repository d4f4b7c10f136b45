#version 460
// gather: out[outer][k][inner] = in[outer][index(k)][inner]; with ALONG each element of the output has an index of its
// own.
//
// One thread an element of the output, of 1, 2, 4, 8 or 16 bytes. With FOURS, where outer and inner are 1, one thread
// makes four elements of 4 bytes by indices of 4 bytes. So four loads are under way at once. Indices are 32 bits: up to
// 2^31 elements.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH GatherPush
#include "include/common.glsl"
#include "include/indices.glsl"

layout(constant_id = 1) const uint ELEMENT_BYTES = 4;
layout(constant_id = 2) const uint DTYPE_INDEX = DTYPE_U32;
layout(constant_id = 3) const uint ALONG = 0;
layout(constant_id = 4) const uint FOURS = 0;

void gather_one(uint i) {
    uint row = i / pc.p.inner, inner = i % pc.p.inner;
    uint outer = row / pc.p.n, k = row % pc.p.n;
    uint index = axis_index(pc.address[1], ALONG != 0 ? i : k, DTYPE_INDEX, pc.p.axis);
    uint from = (outer * pc.p.axis + index) * pc.p.inner + inner;
    if (ELEMENT_BYTES == 16) U32x4s(pc.address[2]).v[i] = U32x4s(pc.address[0]).v[from];
    else if (ELEMENT_BYTES == 8) U32x2s(pc.address[2]).v[i] = U32x2s(pc.address[0]).v[from];
    else if (ELEMENT_BYTES == 4) U32s(pc.address[2]).v[i] = U32s(pc.address[0]).v[from];
    else if (ELEMENT_BYTES == 2) U16s(pc.address[2]).v[i] = U16s(pc.address[0]).v[from];
    else U8s(pc.address[2]).v[i] = U8s(pc.address[0]).v[from];
}

void main() {
    uint i = flat_thread() * (FOURS != 0 ? 4 : 1), count = pc.p.outer * pc.p.n * pc.p.inner;
    if (i >= count) return;
    if (FOURS == 0) {
        gather_one(i);
    } else if (i + 4 > count) {
        for (; i < count; i++) gather_one(i);
    } else {
        uvec4 index = U32x4s(pc.address[1]).v[i / 4], x;
        [[unroll]] for (uint e = 0; e < 4; e++)
            x[e] = U32s(pc.address[0]).v[index_of(index[e], DTYPE_INDEX, pc.p.axis)];
        U32x4s(pc.address[2]).v[i / 4] = x;
    }
}
