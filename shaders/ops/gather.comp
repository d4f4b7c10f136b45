#version 460
// gather: out[outer][k][inner] = in[outer][index(k)][inner]; with ALONG each element of the output has an index of its
// own.
//
// One thread an element of the output. Indices are 32 bits: up to 2^31 elements.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH GatherPush
#include "include/common.glsl"
#include "include/indices.glsl"

layout(constant_id = 1) const uint ELEMENT_BYTES = 4;
layout(constant_id = 2) const uint DTYPE_INDEX = DTYPE_U32;
layout(constant_id = 3) const uint ALONG = 0;

void main() {
    uint i = flat_thread();
    if (i >= pc.p.outer * pc.p.n * pc.p.inner) return;
    uint row = i / pc.p.inner, inner = i % pc.p.inner;
    uint outer = row / pc.p.n, k = row % pc.p.n;
    uint index = axis_index(pc.address[1], ALONG != 0 ? i : k, DTYPE_INDEX, pc.p.axis);
    uint from = (outer * pc.p.axis + index) * pc.p.inner + inner;
    if (ELEMENT_BYTES == 8) U32x2s(pc.address[2]).v[i] = U32x2s(pc.address[0]).v[from];
    else if (ELEMENT_BYTES == 4) U32s(pc.address[2]).v[i] = U32s(pc.address[0]).v[from];
    else if (ELEMENT_BYTES == 2) U16s(pc.address[2]).v[i] = U16s(pc.address[0]).v[from];
    else U8s(pc.address[2]).v[i] = U8s(pc.address[0]).v[from];
}
