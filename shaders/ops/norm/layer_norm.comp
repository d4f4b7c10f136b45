#version 460
// out[row, i] = round(round(round((x[row, i] - mean) / sqrt(variance + eps)) * weight[i]) + bias[i]), mean and variance being those of
// x[row, ...], round() to the dtype of out.
//
// One workgroup a row. A thread keeps HELD quads of it in registers and reads others again; rows whose quads are not aligned go element
// by element. The variance is that of distances from the mean. float32 inside.

#define BUFFERS 4
#define PUSH RmsNormPush
#include "include/common.glsl"
#include "include/quad.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 5) const uint HAS_WEIGHT = 1;
layout(constant_id = 6) const uint HAS_BIAS = 1;

const uint HELD = 4u;

float rounded(float x) {
    if (DTYPE_OUT == DTYPE_F16) return f16_value(f16_bits(x));
    if (DTYPE_OUT == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return x;
}

float of_normal(float y, uint i) {
    if (HAS_WEIGHT != 0u) y = rounded(y) * rounded(load_float(pc.address[1], i, DTYPE_WEIGHT));
    if (HAS_BIAS != 0u) y = rounded(y) + rounded(load_float(pc.address[2], i, DTYPE_BIAS));
    return y;
}

vec4 quad_at(uint64_t row, uint q) { return uintBitsToFloat(load_quad_bits(row + uint64_t(4u * q) * DTYPE_BYTES(DTYPE_X), DTYPE_X)); }

void store_normal(uint64_t row, uint q, vec4 y) {
    [[unroll]] for (uint e = 0; e < 4u; e++)
        y[e] = of_normal(y[e], 4u * q + e);
    store_quad_bits(row + uint64_t(4u * q) * DTYPE_BYTES(DTYPE_OUT), DTYPE_OUT, floatBitsToUint(y));
}

float total(vec4 x) { return (x.x + x.y) + (x.z + x.w); }

void main() {
    uint row = flat_workgroup(), t = gl_LocalInvocationID.x, cols = pc.p.cols;
    if (row >= pc.p.rows) return;
    uint64_t from = pc.address[0] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_X);
    uint64_t to = pc.address[3] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_OUT);
    uint quads = quad_aligned(from, DTYPE_X) && quad_aligned(to, DTYPE_OUT) ? cols / 4u : 0u;

    vec4 held[HELD];
    if (quads > 0u) {
        [[unroll]] for (uint u = 0; u < HELD; u++)
            held[u] = quad_at(from, min(t + u * THREADS, quads - 1u));
    }
    float sum = 0.0;
    [[unroll]] for (uint u = 0; u < HELD; u++)
        if (t + u * THREADS < quads) sum += total(held[u]);
    for (uint q = t + HELD * THREADS; q < quads; q += THREADS) sum += total(quad_at(from, q));
    for (uint i = 4u * quads + t; i < cols; i += THREADS) sum += load_float(from, i, DTYPE_X);
    float mean = workgroup_sum(sum) / float(cols);

    float squares = 0.0;
    [[unroll]] for (uint u = 0; u < HELD; u++) {
        held[u] -= mean;
        if (t + u * THREADS < quads) squares += total(held[u] * held[u]);
    }
    for (uint q = t + HELD * THREADS; q < quads; q += THREADS) {
        vec4 d = quad_at(from, q) - mean;
        squares += total(d * d);
    }
    for (uint i = 4u * quads + t; i < cols; i += THREADS) {
        float d = load_float(from, i, DTYPE_X) - mean;
        squares += d * d;
    }
    float scale = inversesqrt(workgroup_sum(squares) / float(cols) + pc.p.eps);

    [[unroll]] for (uint u = 0; u < HELD; u++)
        if (t + u * THREADS < quads) store_normal(to, t + u * THREADS, held[u] * scale);
    for (uint q = t + HELD * THREADS; q < quads; q += THREADS) store_normal(to, q, (quad_at(from, q) - mean) * scale);
    for (uint i = 4u * quads + t; i < cols; i += THREADS)
        store_float(to, i, DTYPE_OUT, of_normal((load_float(from, i, DTYPE_X) - mean) * scale, i));
}
