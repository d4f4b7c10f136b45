// The packed layout of affine quantized matrices: what the fast products of the CPU read.
//
// Sixteen rows form a tile; a tile is one sequential stream, group of columns after group:
//   16 scales, 16 biases             one cache line of 16-bit floats
//   blocks of 16 bytes, 4 a column step, each holding 4 rows; byte 4 r + j belongs to row r of the block:
//     4 bits   8 columns: low nibble = column j, high nibble = 4 + j
//     8 bits   4 columns: the byte is the code of column j (its nibbles are multiplied apart, because a code above 127 is
//              no operand of the relaxed dot product)
// A vector holds one row a lane, so sums over k stay in their lane and scales are loaded four rows at a time. Scales lie
// beside their codes: as planes of their own they miss the cache on every line, a third of the speed at group 64. A matrix
// takes as many bytes as its three plain arrays together.
//
// The forms of the product have the same sums. Pairs are added in 16 bits, quads in 32. The sum of a quad is a single
// instruction if the machine has one (AVX-VNNI, ARM), else three. packed_quads (packed_kernels.h) says which one to take.
// Without quads, few rows of x are multiplied as integers of 16 bits (packed_words.h).
//
// Rows of x become int8 (or pairs of int8, 256 hi + lo) times one float a group. A product of a nibble and an int8 is
// at most 15 * 128, so 8 pairs fit into 16 bits. The sum of 32 columns is exact in i16 before it is extended.

#ifndef VKMX_WASM_PACKED_H
#define VKMX_WASM_PACKED_H
#include "simd.h"

enum { TILE = 16, VECTORS = TILE / 4, SPAN = 32, MAX_COLUMNS = 16384 }; // SPAN: columns that 16-bit sums hold

typedef struct Packed {
    uint8_t *data;
    uint32_t rows, columns, bits, group, dtype; // dtype of scales and biases
} Packed;

// Bytes of the scales and biases of a group, of its codes, and of a tile.
INLINE uint32_t packed_head_bytes(uint32_t dtype) { return 2 * TILE * DTYPE_BYTES(dtype); }
INLINE uint32_t packed_code_bytes(uint32_t group, uint32_t bits) { return TILE / 8 * group * bits; }
INLINE size_t packed_tile_bytes(const Packed *w) {
    return (size_t)(w->columns / w->group) * (packed_head_bytes(w->dtype) + packed_code_bytes(w->group, w->bits));
}

// Scales (half 0) or biases (half 1) of four rows.
INLINE f4 packed_factors(const uint8_t *head, uint32_t half, uint32_t vector, uint32_t dtype) {
    return f4_load_as(head, half * TILE + 4 * vector, dtype);
}

// Lane i of x in all lanes.
INLINE u4 splat_lane(u4 x, int i) {
    switch (i) {
        case 0: return __builtin_shufflevector(x, x, 0, 0, 0, 0);
        case 1: return __builtin_shufflevector(x, x, 1, 1, 1, 1);
        case 2: return __builtin_shufflevector(x, x, 2, 2, 2, 2);
        default: return __builtin_shufflevector(x, x, 3, 3, 3, 3);
    }
}

typedef int8_t i8x16 __attribute__((vector_size(16)));

// Sums of neighbouring products; codes are 0..15, which every engine multiplies alike.
INLINE i16x8 pair_dot(u4 x, u4 codes) {
#ifdef __wasm_relaxed_simd__
    return (i16x8)__builtin_wasm_relaxed_dot_i8x16_i7x16_s_i16x8((i8x16)x, (i8x16)codes);
#else
    i16x8 sums;
    i8x16 a = (i8x16)x, b = (i8x16)codes;
    for (int i = 0; i < 8; i++) sums[i] = (int16_t)(a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1]);
    return sums;
#endif
}

// sum + the sums of four neighbouring products.
INLINE i4 quad_dot(u4 x, u4 codes, i4 sum) {
#ifdef __wasm_relaxed_simd__
    return __builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4((i8x16)x, (i8x16)codes, sum);
#else
    i8x16 a = (i8x16)x, b = (i8x16)codes;
    for (int i = 0; i < 16; i++) sum[i / 4] += a[i] * b[i];
    return sum;
#endif
}

INLINE i4 widen_pairs(i16x8 p) {
#ifdef __wasm_simd128__
    return __builtin_wasm_extadd_pairwise_i16x8_s_i32x4(p);
#else
    i4 s;
    for (int i = 0; i < 4; i++) s[i] = p[2 * i] + p[2 * i + 1];
    return s;
#endif
}

INLINE u4 low_nibbles(u4 c) { return c & 0x0f0f0f0fu; }
INLINE u4 high_nibbles(u4 c) { return (u4)((u16x8)c >> 4) & 0x0f0f0f0fu; }

#endif
