#version 460
// out[row, i] = exp(in[row, i] - max) / sum over j of exp(in[row, j] - max), in float32.
//
// One workgroup a row; three strided passes, of which the later two read what the cache holds. A row without a finite
// maximum gives NaN, as the formula does.

#define BUFFERS 2
#define PUSH RowsPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    uint base = row * pc.p.cols;

    float most = uintBitsToFloat(0xff800000u);
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) { most = max(most, load_float(pc.address[0], base + i, DTYPE_IN)); }
    most = workgroup_max(most);

    float total = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        total += exp(load_float(pc.address[0], base + i, DTYPE_IN) - most);
    }
    float scale = 1.0 / workgroup_sum(total);

    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        float y = exp(load_float(pc.address[0], base + i, DTYPE_IN) - most) * scale;
        store_float(pc.address[1], base + i, DTYPE_OUT, y);
    }
}
