#version 460
// out[row, i] = in[row, 0] op … op in[row, i]. EXCLUSIVE leaves in[row, i] out (the first is the identity). REVERSE
// folds from the end of the row.
//
// A tile is 4 * QUADS * THREADS elements. Each thread folds QUADS quads of neighbours, with contiguous lanes. The
// workgroup scans the quads' totals in shared memory. A workgroup walks its row tile by tile. With TILED each tile has
// a workgroup of its own, in one pass over memory (Merrill and Garland, decoupled look-back). A workgroup publishes its
// tile's total, and waits for all totals after the nearest known prefix. Then it publishes its own prefix.
//
// prefix(k) is always prefix(k - 1) op total(k), wherever the look-back ends, so results do not depend on what ran
// when. No workgroup relies on the progress of another. After SPINS polls it sums the tiles that are missing itself.

#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#define BUFFERS 3
#define PUSH ScanPush
#include "include/common.glsl"
#include "include/combine.h"
#include "include/quad.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 3) const uint OP = OP_SUM;
layout(constant_id = 4) const uint REVERSE = 0;
layout(constant_id = 5) const uint EXCLUSIVE = 0;
layout(constant_id = 6) const uint TILED = 0;
layout(constant_id = 7) const uint SPINS = 0;

const uint QUADS = SCAN_QUADS;
const uint TILE = 4u * QUADS * THREADS;
const uint WINDOW = 128u; // tiles that a look-back sees at once

// Total and prefix of each tile, zeros at first. A word carries half of a value and a bit that says that it is there, so that words
// need no order among each other.
layout(buffer_reference, std430, buffer_reference_align = 16) volatile devicecoherent buffer Tiles { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) volatile devicecoherent buffer Published { uvec2 v[]; };

const uint THERE = 0x10000u;
uvec2 halves(uint bits) { return uvec2(bits & 0xffffu, bits >> 16) | THERE; }
bool is_there(uvec2 words) { return (words.x & words.y & THERE) != 0u; }
uint whole(uvec2 words) { return (words.x & 0xffffu) | words.y << 16; }

shared uint totals[QUADS * THREADS]; // of the tile's quads, then what comes before each
shared uint folded[2][THREADS];
shared uint seen[WINDOW];
shared uint nearest_prefix, nearest_gap; // tile + 1, 0: none

uint op2(uint a, uint b) { return combine(OP, DTYPE_IN, a, b); }
uint fold_quad(uvec4 q) { return op2(op2(q.x, q.y), op2(q.z, q.w)); }

// Elements i … i + 3 of the walk; the identity past the end.
uvec4 load_some(uint64_t row, uint i) {
    uvec4 q;
    [[unroll]] for (uint e = 0; e < 4u; e++) {
        uint at = REVERSE != 0u ? pc.p.cols - 1u - (i + e) : i + e;
        q[e] = i + e < pc.p.cols ? load_bits(row, at, DTYPE_IN) : identity(OP, DTYPE_IN);
    }
    return q;
}

void store_some(uint64_t row, uint i, uvec4 q) {
    [[unroll]] for (uint e = 0; e < 4u; e++) {
        uint at = REVERSE != 0u ? pc.p.cols - 1u - (i + e) : i + e;
        if (i + e < pc.p.cols) store_bits(row, at, DTYPE_OUT, q[e]);
    }
}

// Where the quad that begins with element i of the walk lies.
uint64_t quad_address(uint64_t row, uint i, uint dtype) {
    return row + uint64_t(REVERSE != 0u ? pc.p.cols - 4u - i : i) * DTYPE_BYTES(dtype);
}
uvec4 turned(uvec4 q) { return REVERSE != 0u ? q.wzyx : q; }

// Whether a tile has all of its elements, in quads that are aligned.
bool is_whole(uint64_t row, uint block, uint dtype) {
    return block + TILE <= pc.p.cols && quad_aligned(quad_address(row, block, dtype), dtype);
}

uint quad_at(uint block, uint u) { return block + 4u * (u * THREADS + gl_LocalInvocationID.x); }

void load_tile(uint64_t row, uint block, out uvec4 quads[QUADS]) {
    if (is_whole(row, block, DTYPE_IN)) {
        [[unroll]] for (uint u = 0; u < QUADS; u++)
            quads[u] = load_quad_bits(quad_address(row, quad_at(block, u), DTYPE_IN), DTYPE_IN);
        [[unroll]] for (uint u = 0; u < QUADS; u++)
            quads[u] = turned(quads[u]);
    } else {
        [[unroll]] for (uint u = 0; u < QUADS; u++)
            quads[u] = load_some(row, quad_at(block, u));
    }
}

// Scans `totals`, exclusively; gives what all of them fold to.
uint scan_totals() {
    uint t = gl_LocalInvocationID.x;
    uint part[QUADS];
    uint mine = identity(OP, DTYPE_IN);
    barrier();
    [[unroll]] for (uint u = 0; u < QUADS; u++) {
        part[u] = totals[QUADS * t + u];
        mine = op2(mine, part[u]);
    }
    folded[0][t] = mine;
    barrier();
    uint now = 0u;
    for (uint step = 1u; step < THREADS; step *= 2u) {
        uint both = folded[now][t];
        if (t >= step) both = op2(folded[now][t - step], both);
        folded[now ^ 1u][t] = both;
        now ^= 1u;
        barrier();
    }
    uint before = t == 0u ? identity(OP, DTYPE_IN) : folded[now][t - 1u];
    [[unroll]] for (uint u = 0; u < QUADS; u++) {
        totals[QUADS * t + u] = before;
        before = op2(before, part[u]);
    }
    uint all = folded[now][THREADS - 1u];
    barrier();
    return all;
}

// The fold of a tile, with the same bits as its workgroup publishes. Rare, so it takes few registers rather than little
// time.
uint total_of(uint64_t row, uint block) {
    for (uint u = 0; u < QUADS; u++) totals[u * THREADS + gl_LocalInvocationID.x] = fold_quad(load_some(row, quad_at(block, u)));
    return scan_totals();
}

void publish(uint64_t tiles, uint tile, uint which, uint bits) {
    if (gl_LocalInvocationID.x == 0u) Published(tiles).v[2u * tile + which] = halves(bits);
}

// The prefix of tile - 1 from the tiles that others published; false after SPINS polls.
bool poll(uint64_t tiles, uint tile, out uint prefix) {
    uint t = gl_LocalInvocationID.x;
    for (uint spin = 0u; spin < SPINS; spin++) {
        if (t == 0u) nearest_prefix = nearest_gap = 0u;
        barrier();
        uint has_prefix = 0u, gap = 0u;
        for (uint first = 0u; first < WINDOW; first += THREADS) {
            uint at = first + t;
            if (at >= min(tile, WINDOW)) continue;
            uvec4 words = Tiles(tiles).v[tile - 1u - at];
            bool final = is_there(words.zw);
            seen[at] = whole(final ? words.zw : words.xy);
            if (final) has_prefix = max(has_prefix, tile - at);
            else if (!is_there(words.xy)) gap = max(gap, tile - at);
        }
        has_prefix = subgroupMax(has_prefix);
        gap = subgroupMax(gap);
        if (subgroupElect()) {
            atomicMax(nearest_prefix, has_prefix);
            atomicMax(nearest_gap, gap);
        }
        barrier();
        uint from = nearest_prefix;
        if (from > nearest_gap) {
            // All threads do: llvmpipe loses the subgroups that skip a loop before a barrier.
            prefix = seen[tile - from];
            for (; from < tile; from++) prefix = op2(prefix, seen[tile - 1u - from]);
            return true;
        }
        barrier(); // both have been read
    }
    return false;
}

// The same without the other workgroups: from the last prefix that is known, or the beginning of the row.
uint sum_up(uint64_t tiles, uint64_t row, uint tile) {
    uint t = gl_LocalInvocationID.x, found = 0u;
    if (t == 0u) nearest_prefix = 0u;
    barrier();
    for (uint first = 0u; first < tile; first += THREADS) {
        uint m = first + t;
        if (m < tile && is_there(Published(tiles).v[2u * m + 1u])) found = max(found, m + 1u);
    }
    found = subgroupMax(found);
    if (subgroupElect()) atomicMax(nearest_prefix, found);
    barrier();
    uint from = nearest_prefix;
    uint prefix = from > 0u ? whole(Published(tiles).v[2u * from - 1u]) : identity(OP, DTYPE_IN);
    for (uint m = from; m < tile; m++) {
        uint total = total_of(row, m * TILE);
        prefix = m == 0u ? total : op2(prefix, total);
        publish(tiles, m, 1u, prefix);
    }
    return prefix;
}

void main() {
    uint per_row = TILED != 0u ? pc.p.tiles : 1u;
    uint group = flat_workgroup(), t = gl_LocalInvocationID.x;
    uint row = group / per_row, tile = group % per_row;
    if (row >= pc.p.rows) return;
    uint64_t from = pc.address[0] + uint64_t(row) * (uint64_t(pc.p.cols) * DTYPE_BYTES(DTYPE_IN));
    uint64_t to = pc.address[1] + uint64_t(row) * (uint64_t(pc.p.cols) * DTYPE_BYTES(DTYPE_OUT));
    uint64_t tiles = pc.address[2] + uint64_t(row) * per_row * 16u;
    uint end = TILED != 0u ? min(pc.p.cols, (tile + 1u) * TILE) : pc.p.cols;
    uint carry = identity(OP, DTYPE_IN);

    for (uint block = tile * TILE; block < end; block += TILE) {
        uvec4 quads[QUADS];
        load_tile(from, block, quads);
        [[unroll]] for (uint u = 0; u < QUADS; u++)
            totals[u * THREADS + t] = fold_quad(quads[u]);
        uint total = scan_totals();
        uint before[QUADS];
        [[unroll]] for (uint u = 0; u < QUADS; u++)
            before[u] = totals[u * THREADS + t];
        bool first = block == 0u;
        if (TILED != 0u) {
            if (tile > 0u) {
                publish(tiles, tile, 0u, total);
                if (!poll(tiles, tile, carry)) carry = sum_up(tiles, from, tile);
            }
            publish(tiles, tile, 1u, first ? total : op2(carry, total));
        }

        [[unroll]] for (uint u = 0; u < QUADS; u++) {
            uint at = first ? before[u] : op2(carry, before[u]);
            uvec4 after;
            [[unroll]] for (uint e = 0; e < 4u; e++) {
                uint next = op2(at, quads[u][e]);
                after[e] = EXCLUSIVE != 0u ? at : next;
                at = next;
            }
            quads[u] = after;
        }
        if (is_whole(to, block, DTYPE_OUT)) {
            [[unroll]] for (uint u = 0; u < QUADS; u++)
                store_quad_bits(quad_address(to, quad_at(block, u), DTYPE_OUT), DTYPE_OUT, turned(quads[u]));
        } else {
            [[unroll]] for (uint u = 0; u < QUADS; u++)
                store_some(to, quad_at(block, u), quads[u]);
        }
        carry = first ? total : op2(carry, total);
        barrier(); // `totals` have been read
    }
}
