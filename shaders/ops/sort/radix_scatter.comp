#version 460
// Puts the elements of each row in the order of one digit, equal ones as they were. starts[row, digit, tile] is where
// those of a tile begin. With INDICES positions travel beside them (their own ones where `indices` is absent).
//
// One workgroup sorts a tile by the digit in shared memory, four bits at a time. Each thread counts its ITEMS
// neighbours in a column of 16-bit counters, two digits a word. A scan over all counters gives places. Elements of one
// digit are then contiguous, and runs of them are written together. No thread counts for another one, so there are
// neither atomics nor subgroups.

#define BUFFERS 5
#define PUSH RadixPush
#include "include/common.glsl"
#include "include/combine.h"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint INDICES = 0;

#include "include/radix.glsl"

const uint COLUMN = 8u; // words of counters a thread: 16 values of four bits

shared uint items[TILE + THREADS];             // padded, so that neighbours of a thread lie in other banks than those of the next
shared uint counters[(COLUMN + 1u) * THREADS]; // in the order of values, then threads; padded
shared uint totals[2][THREADS];
shared uint starts[DIGITS];

uint slot(uint i) { return i + i / ITEMS; }
uint counter(uint i) { return i + i / COLUMN; }

// Brings values to places; each thread then has its neighbours, or with `striped` every THREADS-th.
void exchange(inout uint value[ITEMS], uint place[ITEMS], bool striped) {
    uint t = gl_LocalInvocationID.x;
    barrier();
    [[unroll]] for (uint u = 0; u < ITEMS; u++)
        items[slot(place[u])] = value[u];
    barrier();
    [[unroll]] for (uint u = 0; u < ITEMS; u++)
        value[u] = items[slot(striped ? u * THREADS + t : t * ITEMS + u)];
}

// Scans all counters, exclusively: lower halves are those of values 0 to 7, before the upper ones.
void scan_counters() {
    uint t = gl_LocalInvocationID.x;
    uint part[COLUMN];
    uint mine = 0u;
    barrier();
    [[unroll]] for (uint i = 0; i < COLUMN; i++) {
        part[i] = counters[counter(COLUMN * t + i)];
        mine += part[i];
    }
    totals[0][t] = mine;
    barrier();
    uint now = 0u;
    for (uint step = 1u; step < THREADS; step *= 2u) {
        uint both = totals[now][t];
        if (t >= step) both += totals[now][t - step];
        totals[now ^ 1u][t] = both;
        now ^= 1u;
        barrier();
    }
    uint before = totals[now][t] - mine + (totals[now][THREADS - 1u] << 16);
    [[unroll]] for (uint i = 0; i < COLUMN; i++) {
        counters[counter(COLUMN * t + i)] = before;
        before += part[i];
    }
    barrier();
}

// Places of this thread's neighbours in the order of a value of four bits.
void rank(uint value[ITEMS], out uint place[ITEMS]) {
    uint t = gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0; i < COLUMN; i++)
        counters[counter(i * THREADS + t)] = 0u;
    [[unroll]] for (uint u = 0; u < ITEMS; u++) {
        uint at = counter((value[u] & 7u) * THREADS + t), upper = 16u * (value[u] >> 3);
        uint word = counters[at];
        place[u] = (word >> upper) & 0xffffu;
        counters[at] = word + (1u << upper);
    }
    scan_counters();
    [[unroll]] for (uint u = 0; u < ITEMS; u++) {
        uint at = counter((value[u] & 7u) * THREADS + t), upper = 16u * (value[u] >> 3);
        place[u] += (counters[at] >> upper) & 0xffffu;
    }
}

void main() {
    uint t = gl_LocalInvocationID.x;
    uint row = flat_workgroup() / pc.p.tiles, tile = flat_workgroup() % pc.p.tiles;
    if (row >= pc.p.rows) return;
    uint count = min(TILE, pc.p.cols - tile * TILE), base = row * pc.p.cols, first = base + tile * TILE;

    uint raw[ITEMS], index[ITEMS], place[ITEMS], value[ITEMS];
    [[unroll]] for (uint u = 0; u < ITEMS; u++)
        raw[u] = load_raw_item(pc.address[0], first, count, u);
    if (INDICES != 0u) {
        [[unroll]] for (uint u = 0; u < ITEMS; u++) {
            uint i = tile * TILE + u * THREADS + t;
            index[u] = pc.address[1] == 0ul ? i : U32s(pc.address[1]).v[base + min(i, pc.p.cols - 1u)];
        }
    }
    [[unroll]] for (uint u = 0; u < ITEMS; u++)
        place[u] = u * THREADS + t;
    exchange(raw, place, false);
    if (INDICES != 0u) exchange(index, place, false);

    // Elements past the end have the last digit, and stay there.
    [[unroll]] for (uint half_digit = 0; half_digit < 2u; half_digit++) {
        [[unroll]] for (uint u = 0; u < ITEMS; u++)
            value[u] = t * ITEMS + u < count ? (digit_of(raw[u]) >> (4u * half_digit)) & 15u : 15u;
        rank(value, place);
        if (INDICES != 0u) exchange(index, place, half_digit == 1u);
        exchange(raw, place, half_digit == 1u);
    }

    // Position p of the tile goes to starts[digit] + p: the first one of each digit says how far that is.
    [[unroll]] for (uint u = 0; u < ITEMS; u++) {
        uint p = u * THREADS + t, digit = digit_of(raw[u]);
        if (p < count && (p == 0u || digit_of(items[slot(p - 1u)]) != digit))
            starts[digit] = U32s(pc.address[2]).v[(row * DIGITS + digit) * pc.p.tiles + tile] - p;
    }
    barrier();
    [[unroll]] for (uint u = 0; u < ITEMS; u++) {
        uint p = u * THREADS + t;
        if (p >= count) continue;
        uint to = base + starts[digit_of(raw[u])] + p;
        if (pc.address[3] != 0ul) store_bits(pc.address[3], to, DTYPE_RAW, raw[u]);
        if (INDICES != 0u) U32s(pc.address[4]).v[to] = index[u];
    }
}
