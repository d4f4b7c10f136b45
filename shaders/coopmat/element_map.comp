#version 460
// coopmat_map: asks the driver which element of a 16x16 matrix each lane holds where.
//
// out = {lanes of the subgroup, elements a lane of A, of B, of a sum, then 32 x 8 words for each of them}: word lane * 8 + i of a
// matrix is row * 16 + column of the lane's element i. The words stand only where all three have 8 elements. One workgroup of 32.

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#define BUFFERS 1
#define PUSH CoopmatMapPush
#include "include/common.glsl"

shared uvec4 halves[32]; // element i is the number i
shared uvec4 floats[64];

void main() {
    uint lane = gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint at = lane * 8 + 2 * i;
        halves[lane][i] = packHalf2x16(vec2(at, at + 1));
        floats[lane * 2 + i / 2][i % 2 * 2] = floatBitsToUint(float(at));
        floats[lane * 2 + i / 2][i % 2 * 2 + 1] = floatBitsToUint(float(at + 1));
    }
    barrier();
    MATRIX_A a;
    MATRIX_B b;
    MATRIX_SUM sum;
    coopMatLoad(a, halves, 0, 2, ROW_MAJOR);
    coopMatLoad(b, halves, 0, 2, ROW_MAJOR);
    coopMatLoad(sum, floats, 0, 4, ROW_MAJOR);
    U32s found = U32s(pc.address[0]);
    if (lane == 0 && pc.p.capacity >= 4) {
        found.v[0] = gl_SubgroupSize;
        found.v[1] = a.length();
        found.v[2] = b.length();
        found.v[3] = sum.length();
    }
    if (a.length() != 8 || b.length() != 8 || sum.length() != 8 || pc.p.capacity < 4 + 3 * 256) return;
    [[unroll]] for (uint i = 0; i < 8; i++) {
        found.v[4 + lane * 8 + i] = uint(a[i]);
        found.v[4 + 256 + lane * 8 + i] = uint(b[i]);
        found.v[4 + 512 + lane * 8 + i] = uint(sum[i]);
    }
}
