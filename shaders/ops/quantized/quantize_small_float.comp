#version 460
// quantize_small_float: groups along the rows become codes and a scale of one byte. The arithmetic is that of MLX on
// the CPU, each step rounded to DTYPE (small_float.h).
//
//   mxfp4, mxfp8: s = max |w| / MOST; e = max(ceil(log2(s)), -127), 0 if s is; scale = 127 + e, code of w / 2^e
//   nvfp4: scale = e4m3 of max |w| / MOST * g; code of w / scale * g, with g = 2688 / global or 1
//
// MOST is 6 for e2m1 and 448 for e4m3. One thread a group, any THREADS. Workgroups: ceil(rows * cols / GROUP / THREADS), folded over
// (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH QuantizePush
#include "include/common.glsl"
#include "include/divide.glsl"
#include "include/math/small_float.h"

layout(constant_id = 1) const uint MODE = MODE_MXFP4;
layout(constant_id = 2) const uint DTYPE = DTYPE_F32;

const int MIN_EXPONENT = -127; // of a scale of one byte
const uint CODE_BITS = MODE == MODE_MXFP8 ? 8 : 4;
const uint GROUP = MODE == MODE_NVFP4 ? 16 : 32;

// w / scale as a code where the group has infinities or NaN: MLX divides by 0 then.
uint lost_code(float w) {
    if (MODE != MODE_MXFP8) return 0u;
    if (DTYPE == DTYPE_BF16 && (m_isnan(w) || w == 0.0)) return 126u;
    return 126u | (w == 0.0 ? 128u : floatBitsToUint(w) >> 24 & 128u);
}

void main() {
    uint group = flat_thread();
    if (group >= pc.p.rows * (pc.p.cols / GROUP)) return;
    uint first = group * GROUP, size = 0;
    for (uint i = 0; i < GROUP; i++)
        size = max(size, floatBitsToUint(load_float(pc.address[0], first + i, DTYPE)) & 0x7fffffffu); // NaN is the largest
    bool lost = size >= 0x7f800000u;
    float most = as_dtype(divide(uintBitsToFloat(size), MODE == MODE_MXFP8 ? 448.0 : 6.0), DTYPE);
    float unit = pc.address[3] == 0ul ? 1.0 : divide(2688.0, load_float(pc.address[3], 0, DTYPE_F32)), step;
    uint scale;
    bool least = false; // the step is no normal number then, which a GPU may take for 0
    if (MODE == MODE_NVFP4) {
        precise float encoded = lost ? uintBitsToFloat(size) : most * unit;
        scale = e4m3_code(encoded);
        step = e4m3_value(scale);
    } else {
        int exponent = most == 0.0 ? 0 : max(ceil_log2(most), MIN_EXPONENT);
        scale = lost ? (DTYPE == DTYPE_F32 ? 128u : 0u) : uint(exponent + 127) & 255u;
        least = exponent == MIN_EXPONENT;
        step = m_scale(1.0, exponent);
    }
    for (uint i = 0; i < GROUP; i += 32 / CODE_BITS) {
        uint word = 0;
        for (uint j = 0; j < 32 / CODE_BITS; j++) {
            float w = load_float(pc.address[0], first + i + j, DTYPE);
            float quotient = as_dtype(least ? w * m_scale(1.0, -MIN_EXPONENT) : divide(w, step), DTYPE);
            precise float number = MODE == MODE_NVFP4 ? quotient * unit : quotient;
            uint code = 0;
            if (MODE == MODE_NVFP4) code = step == 0.0 ? 0u : e2m1_code(number, DTYPE_F32);
            else code = lost ? lost_code(w) : MODE == MODE_MXFP8 ? e4m3_code(number) : e2m1_code(number, DTYPE);
            word |= code << j * CODE_BITS;
        }
        U32s(pc.address[1]).v[(first + i) * CODE_BITS / 32] = word;
    }
    U8s(pc.address[2]).v[group] = uint8_t(scale);
}
