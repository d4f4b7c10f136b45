// Many rows of x times tiles of a packed matrix: eight rows of w against four of x at a time.
//
// The form of x in 8 bits, and of 16 bits on machines with quads; those without have packed_words.h.
//
// Half a tile of w is unpacked to bytes once. It stays in the L1 cache while the rows of x (int8, in L2) pass by. Codes
// of 8 bits become two planes, low and high nibbles.

#ifndef VKMX_WASM_PACKED_MATMUL_H
#define VKMX_WASM_PACKED_MATMUL_H
#include "activations.h"

enum { HALF = TILE / 2 };

// Half a tile as bytes: [plane][k / 4][2 vectors of 4 rows][4 columns].
INLINE void unpack_half(const uint8_t *tile, uint32_t half, const Packed *w, uint32_t bits, uint8_t *to) {
    uint8_t *high = bits == 8 ? to + HALF * w->columns : to + 32;
    uint32_t step = bits == 8 ? 32 : 64; // bytes that a block fills in one plane
    const uint8_t *at = tile + 32 * half;
    for (uint32_t g = 0; g < w->columns / w->group; g++) {
        at += packed_head_bytes(w->dtype);
        for (uint32_t i = 0; i < w->group; i += 32 / bits, at += 16 * VECTORS, to += step, high += step) {
            for (uint32_t v = 0; v < 32; v += 16) {
                u4 codes = u4_load(at + v);
                *(u4_unaligned *)(to + v) = low_nibbles(codes);
                *(u4_unaligned *)(high + v) = high_nibbles(codes);
            }
        }
    }
}

// One group of columns of a plane: sum[row of x][vector of 4 rows of w]; x: [k / 4][4][4].
INLINE void group_dot(const uint8_t *w, const int8_t *x, uint32_t group, i4 sum[4][2]) {
    for (uint32_t k = 0; k < group; k += SPAN) {
        i16x8 a[4][2] = {{{0}}};
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < SPAN; i += 4, w += 32, x += 16) {
            u4 w0 = u4_load(w), w1 = u4_load(w + 16), xs = u4_load(x);
#pragma clang loop unroll(full)
            for (int r = 0; r < 4; r++) {
                u4 xr = splat_lane(xs, r);
                a[r][0] += pair_dot(xr, w0);
                a[r][1] += pair_dot(xr, w1);
                keep_order(&a[r][0], &a[r][1]);
            }
        }
        for (int r = 0; r < 4; r++) {
            for (int h = 0; h < 2; h++) sum[r][h] += widen_pairs(a[r][h]);
        }
    }
}

// The same by quads.
INLINE void group_quads(const uint8_t *w, const int8_t *x, uint32_t group, i4 sum[4][2]) {
    for (uint32_t k = 0; k < group; k += SPAN) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < SPAN; i += 4, w += 32, x += 16) {
            u4 w0 = u4_load(w), w1 = u4_load(w + 16), xs = u4_load(x);
#pragma clang loop unroll(full)
            for (int r = 0; r < 4; r++) {
                u4 xr = splat_lane(xs, r);
                sum[r][0] = quad_dot(xr, w0, sum[r][0]);
                sum[r][1] = quad_dot(xr, w1, sum[r][1]);
                keep_order(&sum[r][0], &sum[r][1]);
            }
        }
    }
}

// The same over all planes.
INLINE void code_dot(const uint8_t *w, const int8_t *x, uint32_t bits, bool quads, uint32_t columns, uint32_t group, i4 sum[4][2]) {
    if (quads) group_quads(w, x, group, sum);
    else group_dot(w, x, group, sum);
    if (bits == 4) return;
    i4 high[4][2] = {{{0}}};
    if (quads) group_quads(w + HALF * columns, x, group, high);
    else group_dot(w + HALF * columns, x, group, high);
    for (int r = 0; r < 4; r++) {
        for (int h = 0; h < 2; h++) sum[r][h] += high[r][h] << 4;
    }
}

// Tile t of w times rows first..last-1 of x (first a multiple of 4); x->q and its factors begin at row 0. out (m, w->rows).
INLINE void packed_matmul(const Packed *w, const Activations *x, uint32_t t, uint32_t first, uint32_t last, uint8_t *out,
                          uint32_t dtype_out, uint32_t bits, bool precise, bool quads) {
    uint32_t k = w->columns, group = w->group, groups = k / group, n = w->rows, dtype = w->dtype;
    uint32_t group_bytes = packed_head_bytes(dtype) + packed_code_bytes(group, bits);
    const uint8_t *tile = w->data + t * packed_tile_bytes(w);
    uint8_t planes[2 * HALF * MAX_COLUMNS] __attribute__((aligned(64)));
    for (uint32_t half = 0; half < 2; half++) {
        unpack_half(tile, half, w, bits, planes);
        for (uint32_t row = first; row < last; row += 4) {
            const uint8_t *at = tile;
            const int8_t *q = x->q + (size_t)row * k * (precise ? 2 : 1);
            const float *steps = x->steps + (size_t)row * groups, *sums = x->sums + (size_t)row * groups;
            f4 total[4][2] = {{{0}}};
            for (uint32_t g = 0; g < groups; g++, q += 4 * group, steps += 4, sums += 4, at += group_bytes) {
                const uint8_t *codes = planes + g * HALF * group;
                i4 sum[4][2] = {{{0}}}, fine[4][2] = {{{0}}};
                code_dot(codes, q, bits, quads, k, group, sum);
                if (precise) code_dot(codes, q + 4 * k, bits, quads, k, group, fine);
                f4 step = f4_load(steps), shift = f4_load(sums);
                for (int h = 0; h < 2; h++) {
                    f4 scale = packed_factors(at, 0, 2 * half + h, dtype);
                    f4 bias = packed_factors(at, 1, 2 * half + h, dtype);
#pragma clang loop unroll(full)
                    for (int r = 0; r < 4; r++) {
                        f4 s = (f4)splat_lane((u4)step, r), b = (f4)splat_lane((u4)shift, r);
                        if (precise) sum[r][h] = (sum[r][h] << 8) + fine[r][h];
                        total[r][h] = f4_fma(__builtin_convertvector(sum[r][h], f4), scale * s, total[r][h]);
                        total[r][h] = f4_fma(bias, b, total[r][h]);
                    }
                }
            }
            for (uint32_t r = 0; r < 4 && row + r < last; r++) {
                for (int h = 0; h < 2; h++) {
                    store_four(out, (size_t)(row + r) * n + t * TILE + 8 * half + 4 * h, dtype_out, total[r][h]);
                }
            }
        }
    }
}

#endif
