#version 460
// expert_order: the choices of rows by expert, and tiles of at most HEIGHT of one expert. Choice i is place i % CHOSEN of row i / CHOSEN.
// order has the numbers of choices, those of an expert in their own order. tiles[t] = (first place in the order, expert << 8 | choices).
//
// A workgroup has an expert. Its subgroups take neighbouring choices each, lane by lane, so that a load touches few lines of the cache. They
// count the choices of the expert and of experts before it: the latter are the places before its own. Tiles of an expert begin at
// places / HEIGHT + expert, which leaves room for all before it. Those that are not needed have no choices. THREADS is a multiple of the
// subgroup's size.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH ExpertOrderPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEIGHT = 16;
layout(constant_id = 2) const uint CHOSEN = 8;

#define BATCH 8 // loads in flight

shared uvec2 totals[128]; // of a subgroup: choices of the expert, and of those before it

// The lane's choice of round `round` of a subgroup that begins with choice `first`.
uint choice_of(uint first, uint round) { return first + round * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Experts of BATCH rounds from `round` on; past `end` one that does not exist.
void load_batch(uint first, uint round, uint end, out uint experts[BATCH]) {
    [[unroll]] for (uint i = 0; i < BATCH; i++) {
        uint choice = choice_of(first, round + i), at = min(choice, end - 1u);
        uint expert = uint(load_float(pc.address[0], at + at / CHOSEN * CHOSEN, DTYPE_F32));
        experts[i] = choice < end ? min(expert, gl_NumWorkGroups.x - 1u) : ~0u;
    }
}

// The sum of `own` of all subgroups before this one, and of all.
uvec2 sum_before(uvec2 own, out uvec2 all) {
    if (gl_SubgroupInvocationID == 0) totals[gl_SubgroupID] = own;
    barrier();
    uvec2 sum = all = uvec2(0);
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        if (i == gl_SubgroupID) sum = all;
        all += totals[i];
    }
    return sum;
}

void main() {
    uint choices = pc.p.rows * CHOSEN, expert = gl_WorkGroupID.x, rounds = (choices + THREADS - 1) / THREADS;
    uint first = gl_SubgroupID * rounds * gl_SubgroupSize, experts[BATCH];
    uvec2 own = uvec2(0), all;
    for (uint round = 0; round < rounds; round += BATCH) {
        load_batch(first, round, choices, experts);
        [[unroll]] for (uint i = 0; i < BATCH; i++)
            if (round + i < rounds) own += uvec2(experts[i] == expert, experts[i] < expert);
    }
    own = subgroupAdd(own);
    uvec2 before = sum_before(own, all);
    uint to = all.y + before.x;
    for (uint round = 0; round < rounds && own.x > 0; round += BATCH) {
        if (rounds > BATCH) load_batch(first, round, choices, experts);
        uint mine = 0;           // a bit for each round
        uvec2 counts = uvec2(0); // a byte for each: a subgroup has at most 128 lanes
        [[unroll]] for (uint i = 0; i < BATCH; i++) {
            bool is_own = round + i < rounds && experts[i] == expert;
            mine |= uint(is_own) << i;
            counts[i / 4] |= uint(is_own) << i % 4 * 8;
        }
        uvec2 until = subgroupInclusiveAdd(counts) - counts, each = subgroupAdd(counts);
        [[unroll]] for (uint i = 0; i < BATCH; i++) {
            uint shift = i % 4 * 8;
            if ((mine >> i & 1u) != 0) U32s(pc.address[1]).v[to + (until[i / 4] >> shift & 255u)] = choice_of(first, round + i);
            to += each[i / 4] >> shift & 255u;
        }
    }
    uint me = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    uint tile = all.y / HEIGHT + expert, next = (all.y + all.x) / HEIGHT + expert + 1;
    for (uint i = me; tile + i < next; i += THREADS) {
        uint done = i * HEIGHT, count = done < all.x ? min(HEIGHT, all.x - done) : 0;
        U32x2s(pc.address[2]).v[tile + i] = count > 0 ? uvec2(all.y + done, expert << 8 | count) : uvec2(0);
    }
}
