#version 460
// causal_conv: a convolution of each feature by itself over the last tokens, and what it has to remember:
//   out = round(sum over i of inputs[t + i] * weight[f][i] (+ bias[f])) (B, T, F), through silu where SILU,
//   then the last inputs (B, W - 1, F).
// The inputs of a sequence are its `before` (W - 1, F) and its x (T, F). With `counted`, only so many tokens of x count, and the last
// inputs are those before the others.
//
// A thread has four features of a row. F is a multiple of 4. Sums are float32, and results are rounded to the dtype of x before silu too.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 6
#define PUSH CausalConvPush
#include "include/common.glsl"
#include "include/math/math.h"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_BEFORE = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 5) const uint SILU = 0;
layout(constant_id = 6) const uint HAS_BIAS = 0;
layout(constant_id = 7) const uint HAS_COUNTED = 0;

float rounded(float x) {
    if (DTYPE_X == DTYPE_F16) return f16_value(f16_bits(x));
    if (DTYPE_X == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return x;
}

// Four features of an input of a sequence.
vec4 input_quad(uint batch, uint at, uint quad) {
    uint past = pc.p.window - 1, quads = pc.p.features / 4;
    if (at < past) {
        vec4 x = load_quad(pc.address[0], (batch * past + at) * quads + quad, DTYPE_BEFORE);
        return vec4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
    }
    return load_quad(pc.address[1], (batch * pc.p.tokens + at - past) * quads + quad, DTYPE_X);
}

void main() {
    uint quads = pc.p.features / 4, past = pc.p.window - 1, item = flat_thread();
    if (item >= pc.p.batch * (pc.p.tokens + past) * quads) return;
    uint quad = item % quads, line = item / quads;
    if (line >= pc.p.batch * pc.p.tokens) {
        uint kept = line - pc.p.batch * pc.p.tokens, batch = kept / past;
        uint counted = HAS_COUNTED != 0 ? uint(clamp(I32s(pc.address[4]).v[0], 0, int(pc.p.tokens))) : pc.p.tokens;
        store_quad(pc.address[5], line * quads + quad, DTYPE_X, input_quad(batch, counted + kept % past, quad));
        return;
    }
    uint batch = line / pc.p.tokens, token = line % pc.p.tokens;
    vec4 sum = vec4(0.0);
    for (uint i = 0; i < pc.p.window; i++) {
        vec4 x = input_quad(batch, token + i, quad);
        [[unroll]] for (uint e = 0; e < 4; e++)
            sum[e] += x[e] * load_float(pc.address[2], (quad * 4 + e) * pc.p.window + i, DTYPE_WEIGHT);
    }
    [[unroll]] for (uint e = 0; e < 4; e++) {
        if (HAS_BIAS != 0) sum[e] += load_float(pc.address[3], quad * 4 + e, DTYPE_BIAS);
        sum[e] = rounded(sum[e]);
        if (SILU != 0) sum[e] = sum[e] / (1.0 + m_exp(-sum[e]));
    }
    store_quad(pc.address[5], line * quads + quad, DTYPE_X, sum);
}
