#version 460
// scatter_sorted: out[outer][keys[k]][inner] = OP(out[…], updates[outer][k][inner]) for k = 0 to n - 1. order[0] to
// order[n - 1] are the k by their keys, equal ones in their own order.
//
// One thread a triple (outer, place in the order, inner). The first one of equal keys takes all of their updates in
// order; others have nothing to do. So each place has one writer and the same result on every run. A run has at most
// 60,000 (software drivers end longer loops): the caller splits larger n. Sums are float32 and rounded once.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH GatherPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_KEY = DTYPE_U32;
layout(constant_id = 3) const uint OP = OP_ASSIGN;

#include "include/math/math.h"
#include "scatter.glsl"

uint key_at(uint place) { return load_bits(pc.address[1], U32s(pc.address[2]).v[place], DTYPE_KEY); }

void main() {
    uint i = flat_thread();
    if (i >= pc.p.outer * pc.p.n * pc.p.inner) return;
    uint inner = i % pc.p.inner, at = i / pc.p.inner % pc.p.n, outer = i / pc.p.inner / pc.p.n, key = key_at(at);
    if (at > 0 && key_at(at - 1) == key) return;
    uint end = at + 1;
    while (end < pc.p.n && key_at(end) == key) end++;
    uint to = (outer * pc.p.axis + key) * pc.p.inner + inner, bits = load_bits(pc.address[3], to, DTYPE);
    for (uint next = OP == OP_ASSIGN ? end - 1 : at; next < end; next++) {
        uint k = U32s(pc.address[2]).v[next];
        bits = combine(bits, load_bits(pc.address[0], (outer * pc.p.n + k) * pc.p.inner + inner, DTYPE));
    }
    store_bits(pc.address[3], to, DTYPE, bits);
}
