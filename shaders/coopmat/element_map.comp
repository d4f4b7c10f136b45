#version 460
// coopmat_map: asks the driver which element of a 16x16 matrix each lane holds where. coopmat_map_narrow: B and sums have 8 columns.
//
// out = {lanes of the subgroup, elements a lane of A, of B, of a sum}, then the words of each of these matrices. There
// are 32 x 8 of them, or 32 x 4 with 8 columns. Word lane * 8 + i (or 4) of a matrix is row * columns + column of the
// lane's element i. The words stand only where a lane has so many elements. One workgroup of 32.

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#define BUFFERS 1
#define PUSH CoopmatMapPush
#include "include/common.glsl"

#ifdef NARROW
const uint COLUMNS = 8u;
#define B coopmat<float16_t, gl_ScopeSubgroup, 16, 8, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator>
#else
const uint COLUMNS = 16u;
#define B MATRIX_B
#define SUM MATRIX_SUM
#endif
const uint ELEMENTS = COLUMNS / 2u;

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
    B b;
    SUM sum;
    coopMatLoad(a, halves, 0, 2, ROW_MAJOR);
    coopMatLoad(b, halves, 0, COLUMNS / 8u, ROW_MAJOR);
    coopMatLoad(sum, floats, 0, COLUMNS / 4u, ROW_MAJOR);
    U32s found = U32s(pc.address[0]);
    if (lane == 0 && pc.p.capacity >= 4) {
        found.v[0] = gl_SubgroupSize;
        found.v[1] = a.length();
        found.v[2] = b.length();
        found.v[3] = sum.length();
    }
    if (a.length() != 8 || b.length() != ELEMENTS || sum.length() != ELEMENTS || pc.p.capacity < 4 + 256 + 64 * ELEMENTS) return;
    [[unroll]] for (uint i = 0; i < 8; i++)
        found.v[4 + lane * 8 + i] = uint(a[i]);
    [[unroll]] for (uint i = 0; i < ELEMENTS; i++) {
        found.v[4 + 256 + lane * ELEMENTS + i] = uint(b[i]);
        found.v[4 + 256 + 32 * ELEMENTS + lane * ELEMENTS + i] = uint(sum[i]);
    }
}
