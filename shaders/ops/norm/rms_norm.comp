#version 460
// out[row, i] = round(x[row, i] / sqrt(mean over j of x[row, j]^2 + eps)) * weight[i], round() being to the dtype of
// out.
//
// One workgroup a row: a strided sum of squares, the workgroup's sum, a strided write. float32 inside.

#define BUFFERS 3
#define PUSH RmsNormPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint HAS_WEIGHT = 1;

float rounded(float x) {
    if (DTYPE_OUT == DTYPE_F16) return f16_value(f16_bits(x));
    if (DTYPE_OUT == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return x;
}

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    uint base = row * pc.p.cols;

    float squares = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        float x = load_float(pc.address[0], base + i, DTYPE_X);
        squares += x * x;
    }
    float scale = inversesqrt(workgroup_sum(squares) / float(pc.p.cols) + pc.p.eps);

    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        float y = load_float(pc.address[0], base + i, DTYPE_X) * scale;
        if (HAS_WEIGHT != 0u) y = rounded(y) * rounded(load_float(pc.address[1], i, DTYPE_WEIGHT));
        store_float(pc.address[2], base + i, DTYPE_OUT, y);
    }
}
