#version 460
// keys[row, i] = a uint that compares as one half of x[row, order[row, i]] does, of an 8-byte dtype; without `order` of
// x[row, i]. Sorted by WORD 0 and then, stably, by WORD 1 elements are in order. The words are the low and high halves
// of integers, or the imaginary and real parts of complex numbers. Those with a NaN are after all others and equal.
//
// One thread an element.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH RowsPush
#include "include/common.glsl"
#include "include/combine.h"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_I64;
layout(constant_id = 2) const uint WORD = 0;

uint key_of(uvec2 x) {
    uint word = WORD == 0u ? x.x : x.y;
    if (DTYPE_IN == DTYPE_I64 && WORD == 1u) return word ^ 0x80000000u;
    if (DTYPE_IN != DTYPE_C64) return word;
    if (m_isnan(uintBitsToFloat(x.x)) || m_isnan(uintBitsToFloat(x.y))) return 0xffffffffu;
    return ordered_key(WORD == 0u ? x.y : x.x, DTYPE_F32);
}

void main() {
    uint i = flat_thread();
    if (i >= pc.p.rows * pc.p.cols) return;
    uint place = i;
    if (pc.address[1] != 0ul) place = i / pc.p.cols * pc.p.cols + U32s(pc.address[1]).v[i];
    U32s(pc.address[2]).v[i] = key_of(U32x2s(pc.address[0]).v[place]);
}
