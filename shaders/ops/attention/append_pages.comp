#version 460
// append_pages: pool[table[b][p / PAGE]][h][d / block][p % PAGE][d % block] = update[b][h][t][d], where p = start[b] + t.
// Positions outside of the table are left out.
//
// One thread a unit of ELEMENT_BYTES (1, 2, 4, 8 or 16) of the update. Neighbouring threads have neighbouring units, then
// neighbouring positions. Sizes and strides of the push block count units.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH AppendPagesPush
#include "include/common.glsl"

layout(constant_id = 1) const uint ELEMENT_BYTES = 4;
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
    int from = int(batch) * pc.p.strides[0] + int(head) * pc.p.strides[1] + int(t) * pc.p.strides[2] + int(unit);
    uint block = unit / pc.p.block, blocks = pc.p.units / pc.p.block;
    uint64_t line = (uint64_t(page) * pc.p.heads + head) * blocks + block;
    uint64_t to = pc.address[3] + ((line * PAGE + place) * pc.p.block + unit % pc.p.block) * ELEMENT_BYTES;
    uint64_t source = element_address(pc.address[0], from, ELEMENT_BYTES);
    if (ELEMENT_BYTES == 16) U32x4s(to).v[0] = U32x4s(source).v[0];
    else if (ELEMENT_BYTES == 8) U32x2s(to).v[0] = U32x2s(source).v[0];
    else if (ELEMENT_BYTES == 4) U32s(to).v[0] = U32s(source).v[0];
    else if (ELEMENT_BYTES == 2) U16s(to).v[0] = U16s(source).v[0];
    else U8s(to).v[0] = U8s(source).v[0];
}
