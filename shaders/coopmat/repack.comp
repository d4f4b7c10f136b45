#version 460
// coopmat_repack: quantized w (n, k), packed along k, to fragment order: the order in which the lanes of coopmat_matmul read it.
// A scale and a bias are of SOURCE_GROUP of k there, and of GROUP here.
//
// `map` says which (row of k, column of n) element i of lane l of a 16x16 matrix is (coopmat_map). k counts in steps of
// 64 = 4 matrices. The columns are padded to a multiple of 128, k to one of 64. Padding has code, scale and bias 0.
//   codes   [n / 16][k / 64][lane] a uvec4 (two where BITS is 8) with the lane's 8 codes of each of the 4 matrices, laid out so that
//           a mask gives two neighbouring elements in the low bits of two halves
//   scales_biases  [n / 16][k / GROUP][lane / 4] a uvec2: scale | bias << 16 as float16, of the column of elements 0-3 and of that of elements
//           4-7, which four lanes share. Symmetric codes have no biases: they are 2^(BITS - 1) too large
// The block of 16 columns that [n / 16] counts is where the push block puts it. A thread packs 8 codes: blocks * 16 * padded k / 8 threads.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 6
#define PUSH CoopmatRepackPush
#include "include/common.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 4) const uint SOURCE_GROUP = 64; // GROUP or a multiple

uint code(uint n, uint k) {
    if (n >= pc.p.n || k >= pc.p.k) return 0;
    const uint each = 32u / BITS;
    return U32s(pc.address[0]).v[n * (pc.p.k / each) + k / each] >> (k % each * BITS) & ((1u << BITS) - 1u);
}

uint scales_biases(uint n, uint group) {
    if (n >= pc.p.n || group >= pc.p.k / GROUP) return 0;
    uint at = n * (pc.p.k / SOURCE_GROUP) + group / (SOURCE_GROUP / GROUP);
    float scale = load_float(pc.address[1], at, DTYPE_SCALES);
    float bias = pc.address[2] == 0ul ? -float(1u << BITS - 1u) * scale : load_float(pc.address[2], at, DTYPE_SCALES);
    return f16_bits(scale) | f16_bits(bias) << 16;
}

uint place(uint block) { return pc.p.first + block * pc.p.step; }

void main() {
    U32s map = U32s(pc.address[3]);
    uint steps = (pc.p.k + 63) / 64, groups = steps * 64 / GROUP;
    uint i = flat_thread();
    if (i >= pc.p.blocks * steps * 128) return;
    uint matrix = i % 4, lane = i / 4 % 32, step = i / 128 % steps, block = i / 128 / steps, to = place(block) * steps + step;
    uvec2 packed = uvec2(0);
    [[unroll]] for (uint e = 0; e < 8; e++) {
        uint at = map.v[lane * 8 + e];
        uint value = code(block * 16 + at % 16, step * 64 + matrix * 16 + at / 16);
        if (BITS == 4) packed.x |= value << (e / 2 * 4 + e % 2 * 16);
        else packed[e / 4] |= value << (e / 2 % 2 * 8 + e % 2 * 16);
    }
    if (BITS == 4) {
        U32s(pc.address[4]).v[to * 128 + lane * 4 + matrix] = packed.x;
    } else {
        uint word = (to * 2 + matrix / 2) * 128 + lane * 4 + matrix % 2 * 2;
        U32s(pc.address[4]).v[word] = packed.x;
        U32s(pc.address[4]).v[word + 1] = packed.y;
    }
    if (i >= pc.p.blocks * groups * 8) return;
    uint four = i % 8;
    block = i / 8 / groups;
    to = place(block) * groups + i / 8 % groups;
    [[unroll]] for (uint half_lane = 0; half_lane < 2; half_lane++) {
        uint column = map.v[four * 32 + half_lane * 4] % 16;
        U32s(pc.address[5]).v[(to * 8 + four) * 2 + half_lane] = scales_biases(block * 16 + column, i / 8 % groups);
    }
}
