// Up to four rows of x times a tile of a packed matrix, in integers of 16 bits: the form of machines without quads.
//
// A product of neighbours adds two columns in 32 bits, so a group needs no step between. Codes become integers of 16 bits
// in registers: a shift and a mask for two columns. Eight columns have four pairs, in the order (0, 2), (4, 6), (1, 3),
// (5, 7), and x is stored in that order (activations.h). Each row of x costs what one costs, so none is padded.
//
// Eight bits: a sum is at most 128 columns * 255 * 32512, which 31 bits hold.

#ifndef VKMX_WASM_PACKED_WORDS_H
#define VKMX_WASM_PACKED_WORDS_H
#include "activations.h"

// The pair of four rows of w at position `p` of eight columns, whose codes begin at w.
INLINE u4 word_pair(const uint8_t *w, int p, uint32_t bits, u4 mask) {
    if (bits == 8) {
        u4 codes = u4_load(w + (p & 1) * 16 * VECTORS); // columns 0 to 3, or 4 to 7
        return p < 2 ? codes & mask : (u4)((u16x8)codes >> 8);
    }
    u4 codes = u4_load(w);
    return p == 3 ? (u4)((u16x8)codes >> 12) : (u4)((u16x8)codes >> (4 * p)) & mask;
}

INLINE u4 splat_word(const int16_t *x) {
    uint32_t pair = *(const uint32_t *)x;
    return (u4){pair, pair, pair, pair};
}

// One group of columns: `rows` of x against `vectors` of four rows of w.
INLINE void group_words(const uint8_t *w, const int16_t *x, uint32_t group, uint32_t bits, int rows, int vectors, i4 sum[4][VECTORS]) {
    u4 mask = held(bits == 8 ? 0x00ff00ffu : 0x000f000fu);
    for (uint32_t k = 0; k < group; k += 8, w += packed_code_bytes(8, bits)) {
#pragma clang loop unroll(full)
        for (int p = 0; p < 4; p++, x += 2 * rows) {
            u4 codes[VECTORS];
            for (int h = 0; h < vectors; h++) codes[h] = word_pair(w + 16 * h, p, bits, mask);
#pragma clang loop unroll(full)
            for (int r = 0; r < rows; r++) {
                i16x8 pair = (i16x8)splat_word(x + 2 * r);
                for (int h = 0; h < vectors; h++) sum[r][h] += i4_dot(pair, (i16x8)codes[h]);
                keep_order(&sum[r][0], &sum[r][vectors - 1]);
            }
        }
    }
}

// Tile t of w times a block of `rows` rows of x from row `first` on; x->q and its factors begin at row 0. out (m, w->rows).
INLINE void block_words(const Packed *w, const Activations *x, uint32_t t, uint32_t first, uint8_t *out, uint32_t dtype_out, uint32_t bits,
                        int rows) {
    uint32_t k = w->columns, group = w->group, groups = k / group, dtype = w->dtype;
    const uint8_t *at = w->data + t * packed_tile_bytes(w);
    const int16_t *q = (const int16_t *)x->q + (size_t)first * k;
    const float *steps = x->steps + (size_t)first * groups, *sums = x->sums + (size_t)first * groups;
    int vectors = rows == 4 ? 2 : VECTORS; // what the registers hold
    f4 total[4][VECTORS] = {{{0}}};
    for (uint32_t g = 0; g < groups; g++, q += group * (uint32_t)rows, steps += rows, sums += rows) {
        const uint8_t *head = at;
        at += packed_head_bytes(dtype);
        for (int v = 0; v < VECTORS; v += vectors) {
            i4 sum[4][VECTORS] = {{{0}}};
            group_words(at + 16 * v, q, group, bits, rows, vectors, sum);
            for (int h = 0; h < vectors; h++) {
                f4 scale = packed_factors(head, 0, (uint32_t)(v + h), dtype), bias = packed_factors(head, 1, (uint32_t)(v + h), dtype);
                for (int r = 0; r < rows; r++) {
                    f4 *to = &total[r][v + h];
                    *to = f4_fma(__builtin_convertvector(sum[r][h], f4), scale * steps[r], *to);
                    *to = f4_fma(bias, f4_splat(sums[r]), *to);
                }
            }
        }
        at += packed_code_bytes(group, bits);
    }
    for (int r = 0; r < rows; r++) {
        for (uint32_t h = 0; h < VECTORS; h++) {
            store_four(out, (size_t)(first + (uint32_t)r) * w->rows + t * TILE + 4 * h, dtype_out, total[r][h]);
        }
    }
}

// Tile t of w times rows first..last-1 of x.
INLINE void packed_words(const Packed *w, const Activations *x, uint32_t t, uint32_t first, uint32_t last, uint8_t *out, uint32_t dtype_out,
                         uint32_t bits) {
    for (uint32_t row = first; row < last; row += 4) {
        switch (last - row) {
            case 1: block_words(w, x, t, row, out, dtype_out, bits, 1); break;
            case 2: block_words(w, x, t, row, out, dtype_out, bits, 2); break;
            case 3: block_words(w, x, t, row, out, dtype_out, bits, 3); break;
            default: block_words(w, x, t, row, out, dtype_out, bits, 4);
        }
    }
}

#endif
