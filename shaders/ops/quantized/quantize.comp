#version 460
// quantize: groups along the rows to codes, scale and bias, with MLX's arithmetic: the edge of larger magnitude and 0
// stay exact.
//
//   mask = |min| > |max|; scale = max((max - min) / (2^BITS - 1), 1e-7), negated unless mask; edge = mask ? min : max
//   q0 = roundEven(edge / scale); q0 != 0: scale = edge / q0, bias = edge; else bias = 0
//   code = clamp(roundEven((w - bias) / scale), 0, 2^BITS - 1); only then are scale and bias rounded to DTYPE
//   with one bit, code 0 stands for min and code 1 for max: scale = max(max - min, 1e-7), bias = min
// One thread a group, any THREADS. Workgroups: ceil(rows * cols / GROUP / THREADS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH QuantizePush
#include "include/common.glsl"
#include "include/divide.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE = DTYPE_F32;

void main() {
    uint group = flat_thread();
    if (group >= pc.p.rows * (pc.p.cols / GROUP)) return;
    uint first = group * GROUP;
    float low = load_float(pc.address[0], first, DTYPE), high = low;
    uint lowest = 0u; // the first of the least: min() may choose either zero
    for (uint i = 1; i < GROUP; i++) {
        float w = load_float(pc.address[0], first + i, DTYPE);
        if (w < low) lowest = i;
        low = min(low, w);
        high = max(high, w);
    }
    float most = float((1u << BITS) - 1u), bias = 0.0;
    bool mask = BITS == 1u || abs(low) > abs(high);
    float edge = mask ? low : high;
    precise float scale = max(divide(high - low, most), 1e-7);
    if (!mask) scale = -scale;
    precise float q0 = roundEven(divide(edge, scale));
    if (BITS == 1u) bias = load_float(pc.address[0], first + lowest, DTYPE);
    else if (q0 != 0.0) {
        scale = divide(edge, q0);
        bias = edge;
    }
    // BITS words hold 32 codes; a code may end in the word after the one it begins in.
    uint word = first / 32u * BITS, bits = 0u, used = 0u;
    for (uint i = 0; i < GROUP; i++) {
        precise float steps = divide(load_float(pc.address[0], first + i, DTYPE) - bias, scale);
        uint code = uint(clamp(roundEven(steps), 0.0, most));
        bits |= code << used;
        used += BITS;
        if (used >= 32u) {
            U32s(pc.address[1]).v[word++] = bits;
            used -= 32u;
            bits = used == 0u ? 0u : code >> (BITS - used);
        }
    }
    store_float(pc.address[2], group, DTYPE, scale);
    store_float(pc.address[3], group, DTYPE, bias);
}
