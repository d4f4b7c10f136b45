#version 460
// expert_tiles: cuts rows that are sorted by expert into tiles of at most HEIGHT rows of one expert:
// tiles[i] = (first row, expert << 8 | rows). Tiles that are not needed have no rows.
//
// One workgroup: a thread finds the rows of an expert by bisection, and their first tile from a running sum over experts.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 2
#define PUSH ExpertTilesPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEIGHT = 16;

shared uint sums[THREADS];

// The first row of an expert or of one after it.
uint first_of(uint expert) {
    uint low = 0, high = pc.p.rows;
    while (low < high) {
        uint middle = (low + high) / 2;
        if (U32s(pc.address[0]).v[middle] < expert) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The sum of `own` of all threads up to this one.
uint running_sum(uint own) {
    uint me = gl_LocalInvocationID.x;
    sums[me] = own;
    barrier();
    for (uint step = 1; step < THREADS; step *= 2) {
        uint before = me >= step ? sums[me - step] : 0;
        barrier();
        sums[me] += before;
        barrier();
    }
    return sums[me];
}

void main() {
    uint me = gl_LocalInvocationID.x, before = 0;
    for (uint base = 0; base < pc.p.experts; base += THREADS) {
        uint expert = base + me, first = 0, rows = 0;
        if (expert < pc.p.experts) {
            first = expert == 0 ? 0 : first_of(expert);
            uint end = expert + 1 < pc.p.experts ? first_of(expert + 1) : pc.p.rows;
            rows = end > first ? end - first : 0; // of a list that is not sorted
        }
        uint tiles = (rows + HEIGHT - 1) / HEIGHT, at = before + running_sum(tiles) - tiles;
        for (uint i = 0; i < tiles && at + i < pc.p.tiles; i++)
            U32x2s(pc.address[1]).v[at + i] = uvec2(first + i * HEIGHT, expert << 8 | min(HEIGHT, rows - i * HEIGHT));
        before += sums[THREADS - 1];
        barrier();
    }
    for (uint i = before + me; i < pc.p.tiles; i += THREADS) U32x2s(pc.address[1]).v[i] = uvec2(0);
}
