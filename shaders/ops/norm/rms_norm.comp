#version 460
// out[row, i] = round(x[row, i] / sqrt(mean over j of x[row, j]^2 + eps)) * weight[i], round() being to the dtype of
// out.
//
// One workgroup a row: a strided sum of squares, the workgroup's sum, a strided write. float32 inside. Where memory allows,
// threads go by eights. They keep their first one, and ask for its weights with it: rows of a token have no more.

#define BUFFERS 3
#define PUSH RmsNormPush
#include "include/common.glsl"
#include "include/quad.glsl"
#include "include/vec8.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint HAS_WEIGHT = 1;

float rounded(float x) {
    if (DTYPE_OUT == DTYPE_F16) return f16_value(f16_bits(x));
    if (DTYPE_OUT == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return x;
}

float squares_of(Vec8 e) {
    vec4 a = uintBitsToFloat(e.first), b = uintBitsToFloat(e.second);
    return dot(a, a) + dot(b, b);
}

float normed(float x, float weight) { return HAS_WEIGHT != 0u ? rounded(x) * rounded(weight) : x; }

void store_eight(uint at, Vec8 x, Vec8 weights, float scale) {
    [[unroll]] for (uint quad = 0; quad < 2u; quad++) {
        uvec4 numbers = quad == 0u ? x.first : x.second, factors = quad == 0u ? weights.first : weights.second;
        vec4 y;
        [[unroll]] for (uint i = 0; i < 4u; i++)
            y[i] = normed(uintBitsToFloat(numbers[i]) * scale, uintBitsToFloat(factors[i]));
        store_quad_bits(pc.address[2] + (at + 4u * quad) * DTYPE_BYTES(DTYPE_OUT), DTYPE_OUT, floatBitsToUint(y));
    }
}

Vec8 weights_at(Operand weights, uint at) { return HAS_WEIGHT != 0u ? load_eight(weights, DTYPE_WEIGHT, 0, at) : Vec8(uvec4(0), uvec4(0)); }

void by_eights(Operand x, Operand weights, uint row) {
    uint first = 8u * gl_LocalInvocationID.x, cols = pc.p.cols;
    Vec8 own = Vec8(uvec4(0), uvec4(0)), own_weights = own;
    if (first < cols) {
        own = load_eight(x, DTYPE_X, row, first);
        own_weights = weights_at(weights, first);
        own = unpacked(own, DTYPE_X);
    }
    float squares = squares_of(own);
    for (uint at = first + 8u * THREADS; at < cols; at += 8u * THREADS)
        squares += squares_of(unpacked(load_eight(x, DTYPE_X, row, at), DTYPE_X));
    float scale = inversesqrt(workgroup_sum(squares) / float(cols) + pc.p.eps);
    if (first < cols) store_eight(row * cols + first, own, unpacked(own_weights, DTYPE_WEIGHT), scale);
    for (uint at = first + 8u * THREADS; at < cols; at += 8u * THREADS)
        store_eight(row * cols + at, unpacked(load_eight(x, DTYPE_X, row, at), DTYPE_X), unpacked(weights_at(weights, at), DTYPE_WEIGHT),
                    scale);
}

void by_numbers(uint row) {
    uint base = row * pc.p.cols;
    float squares = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        float x = load_float(pc.address[0], base + i, DTYPE_X);
        squares += x * x;
    }
    float scale = inversesqrt(workgroup_sum(squares) / float(pc.p.cols) + pc.p.eps);
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        float weight = HAS_WEIGHT != 0u ? load_float(pc.address[1], i, DTYPE_WEIGHT) : 1.0;
        store_float(pc.address[2], base + i, DTYPE_OUT, normed(load_float(pc.address[0], base + i, DTYPE_X) * scale, weight));
    }
}

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    Operand x = operand_of(pc.address[0], DTYPE_X, int(pc.p.cols), 1, pc.p.rows, pc.p.cols, true);
    Operand weights = operand_of(pc.address[1], DTYPE_WEIGHT, 8, 1, 1, pc.p.cols, true);
    bool wide = x.wide && aligned16(pc.address[2]) && (HAS_WEIGHT == 0u || weights.wide);
    if (wide) by_eights(x, weights, row);
    else by_numbers(row);
}
