#version 460
// copy: out[place(i) * out_strides] = in[place(i) * in_strides] for every place of a shape of up to five dimensions.
//
// One thread an element of ELEMENT_BYTES: 1, 2, 4 or 8, or 16 if contiguous elements are moved together. DYNAMIC 1
// shifts the output, 2 the input, by start offsets in a buffer. It has a row of them for each of start_rows equal parts
// of the elements. Indices are 32 bits: up to 2^31 elements.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH CopyPush
#include "include/common.glsl"

layout(constant_id = 1) const uint ELEMENT_BYTES = 4;
layout(constant_id = 2) const uint DYNAMIC = 0;

int dynamic_shift(uint element) {
    int shift = 0;
    uint row = pc.p.start_rows > 1u ? element / (pc.p.count / pc.p.start_rows) : 0u;
    for (uint d = 0; d < pc.p.starts; d++) {
        int start = I32s(pc.address[1]).v[row * pc.p.starts + d];
        shift += clamp(start, 0, int(pc.p.start_limits[d])) * pc.p.start_strides[d];
    }
    return shift;
}

void main() {
    uint element = flat_thread(), rest = element;
    if (rest >= pc.p.count) return;
    int from = 0, to = 0;
    for (int d = 4; d >= 0 && rest != 0u; d--) {
        int at = int(rest % pc.p.shape[d]);
        rest /= pc.p.shape[d];
        from += at * pc.p.in_strides[d];
        to += at * pc.p.out_strides[d];
    }
    if (DYNAMIC == 1) to += dynamic_shift(element);
    if (DYNAMIC == 2) from += dynamic_shift(element);
    uint64_t source = element_address(pc.address[0], from, ELEMENT_BYTES);
    uint64_t target = element_address(pc.address[2], to, ELEMENT_BYTES);
    if (ELEMENT_BYTES == 16) U32x4s(target).v[0] = U32x4s(source).v[0];
    else if (ELEMENT_BYTES == 8) U32x2s(target).v[0] = U32x2s(source).v[0];
    else if (ELEMENT_BYTES == 4) U32s(target).v[0] = U32s(source).v[0];
    else if (ELEMENT_BYTES == 2) U16s(target).v[0] = U16s(source).v[0];
    else U8s(target).v[0] = U8s(source).v[0];
}
