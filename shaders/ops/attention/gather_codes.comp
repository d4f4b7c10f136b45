#version 460
// gather_codes: out[b][h][p] = the features of position p of sequence b, out of page table[b][p / PAGE] of a pool with the codes of
// include/kv_codes.glsl. One thread a word. Sizes of the push block count words, strides elements of `out`.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH AppendPagesPush
#include "include/common.glsl"
#include "include/kv_codes.glsl"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint PAGE = 64;

void main() {
    uint i = flat_thread();
    uint unit = i % pc.p.units, position = i / pc.p.units % pc.p.count, row = i / pc.p.units / pc.p.count;
    uint head = row % pc.p.heads, batch = row / pc.p.heads;
    if (batch >= pc.p.batch) return;
    uint page = uint(clamp(I32s(pc.address[1]).v[batch * pc.p.columns + position / PAGE], 0, int(pc.p.pages) - 1));
    uint block = unit / pc.p.block, blocks = pc.p.units / pc.p.block;
    uint64_t line = (uint64_t(page) * pc.p.heads + head) * blocks + block;
    vec4 x = kv_decode(U32s(pc.address[0] + ((line * PAGE + position % PAGE) * pc.p.block + unit % pc.p.block) * 4u).v[0]);
    int to = int(batch) * pc.p.strides[0] + int(head) * pc.p.strides[1] + int(position) * pc.p.strides[2] + int(unit) * 4;
    uint64_t out_address = element_address(pc.address[2], to, DTYPE_BYTES(DTYPE));
    [[unroll]] for (uint d = 0; d < 4u; d++)
        store_float(out_address, d, DTYPE, x[d]);
}
