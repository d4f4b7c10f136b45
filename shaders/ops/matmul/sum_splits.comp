#version 460
// sum_splits: out[i] = sum over splits of parts[split][i], in order: the results of a product whose depth was split, or
// whose rows were split. Then rows of `columns` elements may have a power of two of their own to be multiplied by.
//
// Four elements a thread: ceil(count / 4) threads.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH SumSplitsPush
#include "include/common.glsl"

layout(constant_id = 1) const uint SPLITS = 2;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;

void main() {
    uint base = flat_workgroup() * THREADS * 4 + gl_LocalInvocationID.x;
    [[unroll]] for (uint step = 0; step < 4; step++) {
        uint i = base + step * THREADS;
        if (i >= pc.p.count) return;
        float sum = 0.0;
        [[unroll]] for (uint split = 0; split < SPLITS; split++) { sum += F32s(pc.address[0] + uint64_t(split) * pc.p.count * 4).v[i]; }
        if (pc.address[2] != 0ul) sum *= F32s(pc.address[2]).v[i / pc.p.columns];
        store_float(pc.address[1], i, DTYPE_OUT, sum);
    }
}
