#version 460
// half_rows: rows of floats in 16 bits, as TERMS numbers that add up to each float. Every term holds what those before
// it left over. Products of each term with a matrix of DTYPE_OUT on matrix units thus add up to the product of the
// floats. out[t] has term t of all rows.
//
// float16: each BLOCK rows are scaled by the power of two that puts their largest magnitude below 2^15. powers[row /
// BLOCK] undoes it: x = sum(out) * power. So values beyond its range survive a product with sums in float32. Two terms
// have 22 bits.
// bfloat16 has the range of the floats: no powers. Three terms are the float itself.
// All terms but the last are cut off, not rounded: none is beyond the range then, and compilers take float16 and back for nothing.
// x contiguous and aligned to 16 bytes, cols a multiple of 8. One workgroup per BLOCK rows, folded over (x, y); any THREADS.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH RowsPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint BLOCK = 16;
layout(constant_id = 3) const uint TERMS = 1;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_F16;

#include "include/vector.glsl"

float most_of(vec4 x) {
    vec4 a = abs(x);
    return max(max(a.x, a.y), max(a.z, a.w));
}

// A term of four numbers, which keep the rest; the first term is all of a number that is not finite.
uvec2 take_term(inout vec4 x, bool last) {
    const uint digits = DTYPE_OUT == DTYPE_F16 ? 0xffffe000u : 0xffff0000u;
    vec4 taken = x;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint bits = floatBitsToUint(x[i]);
        bool finite = (bits & 0x7f800000u) != 0x7f800000u;
        if (finite && !last) taken[i] = uintBitsToFloat(bits & digits);
        x[i] = finite ? x[i] - taken[i] : 0.0;
    }
    if (DTYPE_OUT == DTYPE_F16) return uvec2(packHalf2x16(taken.xy), packHalf2x16(taken.zw));
    return uvec2(bf16_bits(taken.x) | bf16_bits(taken.y) << 16, bf16_bits(taken.z) | bf16_bits(taken.w) << 16);
}

void main() {
    uint block = flat_workgroup();
    if (block * BLOCK >= pc.p.rows) return;
    uint eights = min(BLOCK, pc.p.rows - block * BLOCK) * (pc.p.cols / 8);
    uint64_t first = uint64_t(block) * BLOCK * pc.p.cols;
    uint64_t x = pc.address[0] + first * DTYPE_BYTES(DTYPE_X);
    uint64_t out_term = pc.address[1] + first * 2, term_bytes = uint64_t(pc.p.rows) * pc.p.cols * 2;
    vec4 a, b;
    float shrink = 1.0;
    if (DTYPE_OUT == DTYPE_F16) {
        float most = 0.0;
        for (uint i = gl_LocalInvocationID.x; i < eights; i += THREADS) {
            load8(x, i * 8, DTYPE_X, a, b);
            most = max(most, max(most_of(a), most_of(b)));
        }
        most = workgroup_max(most);
        int exponent = most == 0.0 ? 14 : clamp(int(floatBitsToUint(most) >> 23) - 127, -100, 127);
        shrink = uintBitsToFloat(uint(127 + 14 - exponent) << 23);
        if (gl_LocalInvocationID.x == 0) F32s(pc.address[2]).v[block] = uintBitsToFloat(uint(127 + exponent - 14) << 23);
    }
    for (uint i = gl_LocalInvocationID.x; i < eights; i += THREADS) {
        load8(x, i * 8, DTYPE_X, a, b);
        a *= shrink;
        b *= shrink;
        [[unroll]] for (uint t = 0; t < TERMS; t++) {
            uvec2 low = take_term(a, t == TERMS - 1), high = take_term(b, t == TERMS - 1);
            U32x4s(out_term + t * term_bytes).v[i] = uvec4(low, high);
        }
    }
}
