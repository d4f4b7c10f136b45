// Many rows of x times tiles of a packed matrix: eight rows of w against four of x at a time.
//
// A tile of w stays in the first-level cache while the rows of x (int8, second level) pass by. Nibbles are unpacked once
// for four rows of x. Pairs are added in 16 bits: engines make one instruction of that everywhere, and three of the form
// that adds quads where the machine has no instruction of its own for it.

#ifndef VKMX_WASM_PACKED_MATMUL_H
#define VKMX_WASM_PACKED_MATMUL_H
#include "activations.h"

// One group of columns: sum[row of x][vector of 4 rows of w]. w: vector 2 * half of the first block; x: [k / 4][4][4].
INLINE void group_dot(const uint8_t *w, const int8_t *x, uint32_t bits, uint32_t group, i4 sum[4][2]) {
    uint32_t step = 32 / bits; // columns of a block
    for (uint32_t k = 0; k < group; k += SPAN) {
        i16x8 a[4][2] = {{{0}}}, b[4][2] = {{{0}}};
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < SPAN; i += step, w += 16 * VECTORS) {
            u4 c0 = u4_load(w), c1 = u4_load(w + 16);
#pragma clang loop unroll(full)
            for (int part = 0; part < 2; part++) {
                u4 w0 = part ? high_nibbles(c0) : low_nibbles(c0), w1 = part ? high_nibbles(c1) : low_nibbles(c1);
                u4 xs = u4_load(x + (bits == 4 ? 16 * part : 0));
#pragma clang loop unroll(full)
                for (int r = 0; r < 4; r++) {
                    u4 xr = splat_lane(xs, r);
                    i16x8(*to)[2] = bits == 8 && part ? b : a;
                    to[r][0] += pair_dot(xr, w0);
                    to[r][1] += pair_dot(xr, w1);
                    keep_order(&to[r][0], &to[r][1]);
                }
            }
            x += 4 * step;
        }
        for (int r = 0; r < 4; r++) {
            for (int h = 0; h < 2; h++) {
                sum[r][h] += widen_pairs(a[r][h]);
                if (bits == 8) sum[r][h] += widen_pairs(b[r][h]) << 4;
            }
        }
    }
}

// Tile t of w times rows first..last-1 of x (first a multiple of 4); x->q and its factors begin at row 0. out (m, w->rows).
INLINE void packed_matmul(const Packed *w, const Activations *x, uint32_t t, uint32_t first, uint32_t last, uint8_t *out,
                          uint32_t dtype_out, uint32_t bits, bool precise) {
    uint32_t k = w->columns, group = w->group, groups = k / group, n = w->rows, dtype = w->dtype;
    uint32_t group_bytes = packed_head_bytes(dtype) + packed_code_bytes(group, bits);
    const uint8_t *tile = w->data + t * packed_tile_bytes(w);
    for (uint32_t half = 0; half < 2; half++) {
        for (uint32_t row = first; row < last; row += 4) {
            const uint8_t *at = tile;
            const int8_t *q = x->q + (size_t)row * k * (precise ? 2 : 1);
            const float *steps = x->steps + (size_t)row * groups, *sums = x->sums + (size_t)row * groups;
            f4 total[4][2] = {{{0}}};
            for (uint32_t g = 0; g < groups; g++, q += 4 * group, steps += 4, sums += 4, at += group_bytes) {
                const uint8_t *codes = at + packed_head_bytes(dtype) + 32 * half;
                i4 sum[4][2] = {{{0}}}, fine[4][2] = {{{0}}};
                group_dot(codes, q, bits, group, sum);
                if (precise) group_dot(codes, q + 4 * k, bits, group, fine);
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
