#version 460
// scatter: out[outer][index(k)][inner] = OP(out[…], updates[outer][k][inner]) for k = 0 to n - 1; with ALONG each
// update has an index of its own.
//
// One thread a pair (outer, inner); it takes the updates in order, so that equal indices give the same result on every
// run and the last assignment wins. A dispatch takes at most 60,000 updates a thread (software drivers end longer
// loops): the caller splits larger n into dispatches.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH GatherPush
#include "include/common.glsl"
#include "include/indices.glsl"
#include "include/math.h"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_INDEX = DTYPE_U32;
layout(constant_id = 3) const uint ALONG = 0;
layout(constant_id = 4) const uint OP = OP_ASSIGN;

float combine_float(float a, float b) {
    switch (OP) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return m_minimum(a, b);
        case OP_MAX: return m_maximum(a, b);
        default: return b;
    }
}

uint combine_uint(uint a, uint b) {
    switch (OP) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return min(a, b);
        case OP_MAX: return max(a, b);
        default: return b;
    }
}

uint combine(uint a, uint b) {
    if (DTYPE_IS_FLOAT(DTYPE)) return floatBitsToUint(combine_float(uintBitsToFloat(a), uintBitsToFloat(b)));
    if (DTYPE_IS_SIGNED(DTYPE) && OP == OP_MIN) return uint(min(int(a), int(b)));
    if (DTYPE_IS_SIGNED(DTYPE) && OP == OP_MAX) return uint(max(int(a), int(b)));
    uint bits = combine_uint(a, b);
    return DTYPE == DTYPE_BOOL ? uint(bits != 0u) : bits;
}

void main() {
    uint i = flat_thread();
    if (i >= pc.p.outer * pc.p.inner) return;
    uint outer = i / pc.p.inner, inner = i % pc.p.inner;
    for (uint k = 0; k < pc.p.n; k++) {
        uint from = (outer * pc.p.n + k) * pc.p.inner + inner;
        uint index = axis_index(pc.address[1], ALONG != 0 ? from : k, DTYPE_INDEX, pc.p.axis);
        uint to = (outer * pc.p.axis + index) * pc.p.inner + inner;
        uint bits = load_bits(pc.address[0], from, DTYPE);
        if (OP != OP_ASSIGN) bits = combine(load_bits(pc.address[2], to, DTYPE), bits);
        store_bits(pc.address[2], to, DTYPE, bits);
    }
}
