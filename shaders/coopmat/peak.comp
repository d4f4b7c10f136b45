#version 460
// coopmat_peak: how fast the matrix units are by themselves, for benchmarks.
//
// Every subgroup multiplies 4 matrices A_i, filled with i + 1, by 2 matrices B_j, filled with j + 1, `steps` times over, all
// in registers: 8 independent sums of 2 * 16^3 operations a step. out gets the 256 elements of their total, a row of each
// subgroup: 480 * steps everywhere. Workgroups of 4 subgroups of 32.

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#define BUFFERS 1
#define PUSH CoopmatPeakPush
#include "include/common.glsl"

shared uvec4 halves[6 * 32];

void main() {
    for (uint at = gl_LocalInvocationID.x; at < 6 * 32; at += gl_WorkGroupSize.x) {
        uint matrix = at / 32;
        halves[at] = uvec4(packHalf2x16(vec2(float(matrix < 4 ? matrix + 1 : matrix - 3))));
    }
    barrier();
    MATRIX_A a[4];
    MATRIX_B b[2];
    MATRIX_SUM sums[8];
    [[unroll]] for (uint i = 0; i < 4; i++) coopMatLoad(a[i], halves, i * 32, 2, ROW_MAJOR);
    [[unroll]] for (uint j = 0; j < 2; j++) coopMatLoad(b[j], halves, (4 + j) * 32, 2, ROW_MAJOR);
    [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = MATRIX_SUM(0.0);
    for (uint step = 0; step < pc.p.steps; step++) {
        [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = coopMatMulAdd(a[i / 2], b[i % 2], sums[i]);
    }
    [[unroll]] for (uint i = 1; i < 8; i++) sums[0] += sums[i];
    uint subgroup = gl_WorkGroupID.x * 4 + gl_SubgroupID;
    if (subgroup < pc.p.count) coopMatStore(sums[0], F32s(pc.address[0]).v, subgroup * 256, 16, ROW_MAJOR);
}
