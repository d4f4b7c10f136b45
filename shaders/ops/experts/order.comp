#version 460
// expert_order: the choices of rows by expert, and tiles of at most HEIGHT of one expert. Choice i is place i % chosen of row i / chosen.
// order has the numbers of choices, those of an expert in their own order. tiles[t] = (first place in the order, expert << 7 | choices).
//
// A workgroup has an expert. Its threads take neighbouring rows each, and count choices of it and of those before it: the latter are the
// places before its own. Tiles of an expert begin at places / HEIGHT + expert, which leaves room for all before it. Those that are not
// needed have no choices.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH ExpertOrderPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEIGHT = 16;

shared uvec2 sums[THREADS]; // choices of the expert, and of those before it

uint expert_of(uint row, uint place) {
    return min(uint(load_float(pc.address[0], row * 2u * pc.p.chosen + place, DTYPE_F32)), gl_NumWorkGroups.x - 1u);
}

// The sum of `own` of all threads up to this one.
uvec2 running_sum(uvec2 own) {
    uint me = gl_LocalInvocationID.x;
    sums[me] = own;
    barrier();
    for (uint step = 1; step < THREADS; step *= 2) {
        uvec2 before = me >= step ? sums[me - step] : uvec2(0);
        barrier();
        sums[me] += before;
        barrier();
    }
    return sums[me];
}

void main() {
    uint me = gl_LocalInvocationID.x, expert = gl_WorkGroupID.x, each = (pc.p.rows + THREADS - 1) / THREADS;
    uint first = min(me * each, pc.p.rows), end = min(first + each, pc.p.rows);
    uvec2 own = uvec2(0);
    for (uint row = first; row < end; row++) {
        for (uint place = 0; place < pc.p.chosen; place++) {
            uint other = expert_of(row, place);
            own += uvec2(other == expert, other < expert);
        }
    }
    uvec2 until = running_sum(own), all = sums[THREADS - 1];
    uint to = all.y + until.x - own.x;
    for (uint row = first; row < end && own.x > 0; row++) {
        for (uint place = 0; place < pc.p.chosen; place++)
            if (expert_of(row, place) == expert) U32s(pc.address[1]).v[to++] = row * pc.p.chosen + place;
    }
    uint tile = all.y / HEIGHT + expert, next = (all.y + all.x) / HEIGHT + expert + 1;
    for (uint i = me; tile + i < next; i += THREADS) {
        uint done = i * HEIGHT, count = done < all.x ? min(HEIGHT, all.x - done) : 0;
        U32x2s(pc.address[2]).v[tile + i] = count > 0 ? uvec2(all.y + done, expert << 7 | count) : uvec2(0);
    }
}
