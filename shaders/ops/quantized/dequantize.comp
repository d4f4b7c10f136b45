#version 460
// dequantize: out = scale * code + bias, each step rounded to DTYPE_SCALES as MLX does, then cast to DTYPE_OUT; of all rows, or of
// those at indices. Scales and biases are rounded to DTYPE_SCALES when they are stored in another dtype.
//
// MODE symmetric: out = scale * (code - 2^(bits - 1)), rounded once.
//
// Small floats (MODE): out = code * scale, both numbers of DTYPE_OUT; with `global` code * (scale * (global / 2688)) in float32.
//
// One thread eight elements, any THREADS. Workgroups: ceil(rows * cols / 8 / THREADS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 6
#define PUSH DequantizePush
#include "include/common.glsl"
#include "include/divide.glsl"
#include "include/indices.glsl"
#include "include/math/small_float.h"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_STORED = DTYPE_F32;
layout(constant_id = 6) const uint DTYPE_INDEX = DTYPE_U32;
layout(constant_id = 7) const uint MODE = MODE_AFFINE;

#include "quantized.glsl"

float rounded(float x) { return as_dtype(x, DTYPE_SCALES); }

// The scale of a group, which that of the matrix is part of.
float small_scale(uint group) {
    float scale = as_dtype(scale_value(uint(U8s(pc.address[1]).v[group]), MODE), DTYPE_OUT);
    if (pc.address[5] == 0ul) return scale;
    precise float whole = scale * divide(load_float(pc.address[5], 0, DTYPE_F32), 2688.0);
    return whole;
}

void main() {
    uint eight = flat_thread(), per = pc.p.cols / 8;
    if (eight >= pc.p.rows * per) return;
    uint from = eight;
    if (pc.address[4] != 0ul) from = axis_index(pc.address[4], eight / per, DTYPE_INDEX, pc.p.table) * per + eight % per;
    uvec2 codes = codes8(pc.address[0] + uint64_t(from / 4) * (4 * BITS), from % 4);
    if (MODE == MODE_SYMMETRIC) {
        float scale = load_float(pc.address[1], from * 8 / GROUP, DTYPE_STORED), middle = float(1u << (BITS - 1u));
        for (uint i = 0; i < 8; i++) store_float(pc.address[3], eight * 8 + i, DTYPE_OUT, scale * (float(code_at(codes, i)) - middle));
        return;
    }
    if (MODE != MODE_AFFINE) {
        float scale = small_scale(from * 8 / GROUP);
        for (uint i = 0; i < 8; i++) {
            float number = number_value(code_at(codes, i), MODE);
            store_float(pc.address[3], eight * 8 + i, DTYPE_OUT, MODE == MODE_NVFP4 ? scale * number : scaled_by_power(number, scale));
        }
        return;
    }
    float scale = rounded(load_float(pc.address[1], from * 8 / GROUP, DTYPE_STORED));
    float bias = rounded(load_float(pc.address[2], from * 8 / GROUP, DTYPE_STORED));
    // Not [[unroll]]: the copies that the SPIR-V optimizer makes of a loop's body are no longer precise.
    for (uint i = 0; i < 8; i++) {
        precise float product = scale * float(code_at(codes, i));
        precise float w = rounded(product) + bias;
        store_float(pc.address[3], eight * 8 + i, DTYPE_OUT, rounded(w));
    }
}
