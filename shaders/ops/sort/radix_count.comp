#version 460
// counts[row, digit, tile] = elements of the tile with that digit; scanned over a row they are where each tile puts them.
//
// One workgroup a tile counts in shared memory.

#define BUFFERS 2
#define PUSH RadixPush
#include "include/common.glsl"
#include "include/combine.h"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;

#include "include/radix.glsl"

shared uint counts[DIGITS];

void main() {
    uint t = gl_LocalInvocationID.x;
    uint row = flat_workgroup() / pc.p.tiles, tile = flat_workgroup() % pc.p.tiles;
    if (row >= pc.p.rows) return;
    for (uint digit = t; digit < DIGITS; digit += THREADS) counts[digit] = 0u;
    uint count = min(TILE, pc.p.cols - tile * TILE);
    uint raw[ITEMS];
    [[unroll]] for (uint u = 0; u < ITEMS; u++)
        raw[u] = load_raw_item(pc.address[0], row * pc.p.cols + tile * TILE, count, u);
    barrier();
    [[unroll]] for (uint u = 0; u < ITEMS; u++)
        if (u * THREADS + t < count) atomicAdd(counts[digit_of(raw[u])], 1u);
    barrier();
    for (uint digit = t; digit < DIGITS; digit += THREADS)
        U32s(pc.address[1]).v[(row * DIGITS + digit) * pc.p.tiles + tile] = counts[digit];
}
