#version 460
// scatter: out[outer][index(k)][inner] = OP(out[…], updates[outer][k][inner]) for k = 0 to n - 1; with ALONG each
// update has an index of its own.
//
// One thread a pair (outer, inner). It takes the updates in order, so equal indices give the same result on every run
// and the last assignment wins. A dispatch takes at most 60,000 updates a thread (software drivers end longer loops):
// the caller splits larger n into dispatches.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH GatherPush
#include "include/common.glsl"
#include "include/indices.glsl"
#include "include/wide.glsl"
#include "include/combine_wide.h"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_INDEX = DTYPE_U32;
layout(constant_id = 3) const uint ALONG = 0;
layout(constant_id = 4) const uint OP = OP_ASSIGN;

#include "scatter.glsl"

uvec2 combine_pair(uvec2 a, uvec2 b) {
    if (DTYPE == DTYPE_I64) return unpackUint2x32(uint64_t(combine_long(OP, int64_t(packUint2x32(a)), int64_t(packUint2x32(b)))));
    if (DTYPE == DTYPE_U64) return unpackUint2x32(combine_ulong(OP, packUint2x32(a), packUint2x32(b)));
    vec2 x = uintBitsToFloat(a), y = uintBitsToFloat(b);
    Complex z = combine_complex(OP, CX(x.x, x.y), CX(y.x, y.y));
    return floatBitsToUint(vec2(z.re, z.im));
}

void update(uint to, uint from) {
    if (DTYPE_IS_WIDE(DTYPE)) {
        uvec2 pair = U32x2s(pc.address[0]).v[from];
        if (OP != OP_ASSIGN) pair = combine_pair(U32x2s(pc.address[2]).v[to], pair);
        U32x2s(pc.address[2]).v[to] = pair;
        return;
    }
    uint bits = load_bits(pc.address[0], from, DTYPE);
    if (OP != OP_ASSIGN) bits = combine(load_bits(pc.address[2], to, DTYPE), bits);
    store_bits(pc.address[2], to, DTYPE, bits);
}

void main() {
    uint i = flat_thread();
    if (i >= pc.p.outer * pc.p.inner) return;
    uint outer = i / pc.p.inner, inner = i % pc.p.inner;
    for (uint k = 0; k < pc.p.n; k++) {
        uint from = (outer * pc.p.n + k) * pc.p.inner + inner;
        uint index = axis_index(pc.address[1], ALONG != 0 ? from : k, DTYPE_INDEX, pc.p.axis);
        update((outer * pc.p.axis + index) * pc.p.inner + inner, from);
    }
}
