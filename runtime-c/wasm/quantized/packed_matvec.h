// One row of x times tiles of a packed matrix.

#ifndef VKMX_WASM_PACKED_MATVEC_H
#define VKMX_WASM_PACKED_MATVEC_H
#include "activations.h"

// Products added to sums that pairs keep in 16 bits, for SPAN columns at most, and quads in 32.
INLINE i4 add_dot(i4 sums, u4 x, u4 codes, bool quads) { return quads ? quad_dot(x, codes, sums) : (i4)((i16x8)sums + pair_dot(x, codes)); }
INLINE i4 add_two(i4 sums, u4 x0, u4 codes0, u4 x1, u4 codes1, bool quads) {
    return quads ? quad_dot(x1, codes1, quad_dot(x0, codes0, sums)) : (i4)((i16x8)sums + (pair_dot(x0, codes0) + pair_dot(x1, codes1)));
}
INLINE i4 sums_of(i4 sums, bool quads) { return quads ? sums : widen_pairs((i16x8)sums); }

// 32 columns of a tile of 4 bits. x: 32 int8, or 32 hi and then 32 lo, whose sums go to `fine`.
INLINE void span_dot(const uint8_t *w, const int8_t *x, bool precise, bool quads, i4 *sum, i4 *fine) {
    i4 a[VECTORS] = {{0}}, b[VECTORS] = {{0}};
#pragma clang loop unroll(full)
    for (int o = 0; o < 2; o++) {
        u4 xs = u4_load(x + 16 * o), ys = precise ? u4_load(x + SPAN + 16 * o) : xs;
#pragma clang loop unroll(full)
        for (int q = 0; q < 4; q += 2) {
            u4 x0 = splat_lane(xs, q), x1 = splat_lane(xs, q + 1), y0 = splat_lane(ys, q), y1 = splat_lane(ys, q + 1);
#pragma clang loop unroll(full)
            for (int h = 0; h < VECTORS; h++, w += 16) {
                u4 c = u4_load(w), low = low_nibbles(c), high = high_nibbles(c);
                a[h] = add_two(a[h], x0, low, x1, high, quads);
                if (precise) b[h] = add_two(b[h], y0, low, y1, high, quads);
                keep_order(&a[h], precise ? &b[h] : &a[h]);
            }
        }
    }
    for (int h = 0; h < VECTORS; h++) {
        sum[h] += sums_of(a[h], quads);
        if (precise) fine[h] += sums_of(b[h], quads);
    }
}

// The same of 8 bits: low and high nibbles are summed apart.
INLINE void span_dot8(const uint8_t *w, const int8_t *x, bool precise, bool quads, i4 *sum, i4 *fine) {
    for (int pass = 0; pass <= (int)precise; pass++, x += SPAN) {
        const uint8_t *at = w;
        i4 a[VECTORS] = {{0}}, b[VECTORS] = {{0}};
#pragma clang loop unroll(full)
        for (int o = 0; o < 2; o++) {
            u4 xs = u4_load(x + 16 * o);
#pragma clang loop unroll(full)
            for (int q = 0; q < 4; q++) {
                u4 x0 = splat_lane(xs, q);
#pragma clang loop unroll(full)
                for (int h = 0; h < VECTORS; h++, at += 16) {
                    u4 c = u4_load(at);
                    a[h] = add_dot(a[h], x0, low_nibbles(c), quads);
                    b[h] = add_dot(b[h], x0, high_nibbles(c), quads);
                    keep_order(&a[h], &b[h]);
                }
            }
        }
        i4 *to = pass ? fine : sum;
        for (int h = 0; h < VECTORS; h++) to[h] += sums_of(a[h], quads) + (sums_of(b[h], quads) << 4);
    }
}

// Tiles first..last-1 of the product. bits, precise and quads are constants at every call, dtype if it is bfloat16.
INLINE void packed_matvec(const Packed *w, const Activations *x, uint32_t first, uint32_t last, uint8_t *out, uint32_t dtype_out,
                          uint32_t bits, uint32_t dtype, bool precise, bool quads) {
    uint32_t group = w->group, groups = w->columns / group;
    const uint8_t *at = w->data + first * packed_tile_bytes(w);
    for (uint32_t t = first; t < last; t++) {
        const int8_t *q = x->q;
        f4 total[VECTORS] = {{0}};
        for (uint32_t g = 0; g < groups; g++) {
            const uint8_t *head = at;
            at += packed_head_bytes(dtype);
            i4 sum[VECTORS] = {{0}}, fine[VECTORS] = {{0}};
            for (uint32_t i = 0; i < group; i += SPAN) {
                if (bits == 8) span_dot8(at, q, precise, quads, sum, fine);
                else span_dot(at, q, precise, quads, sum, fine);
                at += packed_code_bytes(SPAN, bits);
                q += precise ? 2 * SPAN : SPAN;
            }
            for (int h = 0; h < VECTORS; h++) {
                if (precise) sum[h] = (sum[h] << 8) + fine[h];
                f4 scale = packed_factors(head, 0, h, dtype), bias = packed_factors(head, 1, h, dtype);
                total[h] = f4_fma(__builtin_convertvector(sum[h], f4), scale * x->steps[g], total[h]);
                total[h] = f4_fma(bias, f4_splat(x->sums[g]), total[h]);
            }
        }
        for (int h = 0; h < VECTORS; h++) store_four(out, (size_t)t * TILE + 4 * h, dtype_out, total[h]);
    }
}

#endif
