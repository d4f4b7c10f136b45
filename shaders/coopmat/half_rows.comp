#version 460
// half_rows: rows of floats to float16, each 16 rows scaled by the power of two that puts their largest magnitude below 2^15.
//
// powers[row / 16] undoes it: x = out * power. So values beyond float16's range survive a product in float16 with sums in float32.
// x contiguous and aligned to 16 bytes, cols a multiple of 8. One workgroup per 16 rows, folded over (x, y); any THREADS.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH RowsPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;

#include "include/vector.glsl"

float most_of(vec4 x) {
    vec4 a = abs(x);
    return max(max(a.x, a.y), max(a.z, a.w));
}

void main() {
    uint block = flat_workgroup();
    if (block * 16 >= pc.p.rows) return;
    uint eights = min(16, pc.p.rows - block * 16) * (pc.p.cols / 8);
    uint64_t first = uint64_t(block) * 16 * pc.p.cols;
    uint64_t x = pc.address[0] + first * DTYPE_BYTES(DTYPE_X);
    U32x4s halves = U32x4s(pc.address[1] + first * 2);
    vec4 a, b;
    float most = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < eights; i += THREADS) {
        load8(x, i * 8, DTYPE_X, a, b);
        most = max(most, max(most_of(a), most_of(b)));
    }
    most = workgroup_max(most);
    int exponent = most == 0.0 ? 14 : clamp(int(floatBitsToUint(most) >> 23) - 127, -100, 100);
    float shrink = uintBitsToFloat(uint(127 + 14 - exponent) << 23);
    for (uint i = gl_LocalInvocationID.x; i < eights; i += THREADS) {
        load8(x, i * 8, DTYPE_X, a, b);
        a *= shrink;
        b *= shrink;
        halves.v[i] = uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
    }
    if (gl_LocalInvocationID.x == 0) F32s(pc.address[2]).v[block] = uintBitsToFloat(uint(127 + exponent - 14) << 23);
}
