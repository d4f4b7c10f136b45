#version 460
// append_codes: positions of sequences into a pool of pages, as append_pages.comp does, in the codes of include/kv_codes.glsl. One thread a
// word: four features of the update, of any float dtype. Sizes of the push block count words, strides elements.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH AppendPagesPush
#include "include/common.glsl"
#include "include/kv_codes.glsl"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint PAGE = 64;

void main() {
    uint i = flat_thread();
    uint unit = i % pc.p.units, t = i / pc.p.units % pc.p.count, row = i / pc.p.units / pc.p.count;
    uint head = row % pc.p.heads, batch = row / pc.p.heads;
    if (batch >= pc.p.batch) return;
    int position = I32s(pc.address[2]).v[batch] + int(t);
    if (position < 0 || position / int(PAGE) >= int(pc.p.columns)) return;
    uint column = uint(position) / PAGE, place = uint(position) % PAGE;
    uint page = uint(clamp(I32s(pc.address[1]).v[batch * pc.p.columns + column], 0, int(pc.p.pages) - 1));
    int from = int(batch) * pc.p.strides[0] + int(head) * pc.p.strides[1] + int(t) * pc.p.strides[2] + int(unit) * 4;
    uint64_t source = element_address(pc.address[0], from, DTYPE_BYTES(DTYPE));
    vec4 x;
    [[unroll]] for (uint d = 0; d < 4u; d++)
        x[d] = load_float(source, d, DTYPE);
    uint block = unit / pc.p.block, blocks = pc.p.units / pc.p.block;
    uint64_t line = (uint64_t(page) * pc.p.heads + head) * blocks + block;
    U32s(pc.address[3] + ((line * PAGE + place) * pc.p.block + unit % pc.p.block) * 4u).v[0] = kv_encode(x);
}
