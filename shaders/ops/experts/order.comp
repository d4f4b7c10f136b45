#version 460
// expert_order: the choices of rows by expert, and tiles of at most HEIGHT of one expert. Choice i is place i % chosen of row i / chosen.
// order has the numbers of choices, those of an expert in their own order. tiles[t] = (first place in the order, expert << 8 | choices).
//
// A workgroup has an expert. Its threads take neighbouring choices each, and count those of it and of experts before it: the latter are
// the places before its own. Tiles of an expert begin at places / HEIGHT + expert, which leaves room for all before it. Those that are not
// needed have no choices. THREADS is a multiple of the subgroup's size.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH ExpertOrderPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEIGHT = 16;

#define BATCH 8 // loads in flight

shared uvec2 totals[128]; // of a subgroup: choices of the expert, and of those before it

// The thread's number: neighbours of a subgroup have neighbouring ones.
uint me() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Experts of BATCH choices from `first` on; past `end` one that does not exist.
void load_batch(uint first, uint end, out uint experts[BATCH]) {
    uint row = first / pc.p.chosen, place = first % pc.p.chosen;
    [[unroll]] for (uint i = 0; i < BATCH; i++) {
        uint expert = uint(load_float(pc.address[0], min(row, pc.p.rows - 1u) * 2u * pc.p.chosen + place, DTYPE_F32));
        experts[i] = first + i < end ? min(expert, gl_NumWorkGroups.x - 1u) : ~0u;
        place++;
        if (place == pc.p.chosen) row++, place = 0;
    }
}

// The sum of `own` of all threads up to this one, and of all.
uvec2 running_sum(uvec2 own, out uvec2 all) {
    uvec2 sum = subgroupInclusiveAdd(own);
    if (gl_SubgroupInvocationID == gl_SubgroupSize - 1u) totals[gl_SubgroupID] = sum;
    barrier();
    all = uvec2(0);
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        if (i == gl_SubgroupID) sum += all;
        all += totals[i];
    }
    return sum;
}

void main() {
    uint choices = pc.p.rows * pc.p.chosen, expert = gl_WorkGroupID.x, each = (choices + THREADS - 1) / THREADS;
    uint first = min(me() * each, choices), end = min(first + each, choices), experts[BATCH];
    uvec2 own = uvec2(0), all;
    for (uint at = first; at < end; at += BATCH) {
        load_batch(at, end, experts);
        [[unroll]] for (uint i = 0; i < BATCH; i++)
            own += uvec2(experts[i] == expert, experts[i] < expert);
    }
    uvec2 until = running_sum(own, all);
    uint to = all.y + until.x - own.x;
    for (uint at = first; at < end && own.x > 0; at += BATCH) {
        if (each > BATCH) load_batch(at, end, experts);
        [[unroll]] for (uint i = 0; i < BATCH; i++)
            if (experts[i] == expert) U32s(pc.address[1]).v[to++] = at + i;
    }
    uint tile = all.y / HEIGHT + expert, next = (all.y + all.x) / HEIGHT + expert + 1;
    for (uint i = me(); tile + i < next; i += THREADS) {
        uint done = i * HEIGHT, count = done < all.x ? min(HEIGHT, all.x - done) : 0;
        U32x2s(pc.address[2]).v[tile + i] = count > 0 ? uvec2(all.y + done, expert << 8 | count) : uvec2(0);
    }
}
