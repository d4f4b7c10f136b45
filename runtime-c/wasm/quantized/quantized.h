// Affine quantized rows as MLX stores them. Each row is a little-endian bitstream of codes, lowest bits first, with one
// scale and one bias per group. w = scale * code + bias. Eight codes always fill `bits` whole bytes, which is the unit
// of unpacking here. In mode symmetric w = scale * (code - 2^(bits - 1)). In the others codes are small floats
// (small_float.h) and w = scale * number.

#ifndef VKMX_WASM_QUANTIZED_H
#define VKMX_WASM_QUANTIZED_H
#include "quantized/small_floats.h"

typedef struct Quantized {
    const uint8_t *codes, *scales, *biases;
    uint32_t columns, bits, group, dtype_scales, mode;
} Quantized;

// Matrix number `index` of a stack of (rows, columns).
INLINE Quantized quantized_matrix(const Quantized *stack, uint32_t rows, uint32_t index) {
    Quantized q = *stack;
    size_t elements = (size_t)rows * q.columns * index, scale_bytes = elements / q.group * DTYPE_BYTES(q.dtype_scales);
    q.codes += elements / 8 * q.bits;
    q.scales += scale_bytes;
    q.biases += scale_bytes;
    return q;
}

// Eight codes as floats.
INLINE void unpack8(const uint8_t *from, uint32_t bits, float *to) {
    if (bits == 4 || bits == 8) {
        u8x16 v = {0}, none = {0};
        if (bits == 4) {
            u8x16 low = (u8x16)(u4){*(const uint32_t *)from, 0, 0, 0} & 15, high = (u8x16)(u4){*(const uint32_t *)from >> 4, 0, 0, 0} & 15;
            v = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 4, 4, 4, 4, 4, 4, 4);
        } else {
            v = (u8x16)(u4){((const uint32_t *)from)[0], ((const uint32_t *)from)[1], 0, 0};
        }
        f4_store(to, f4_from_ints((u4)__builtin_shufflevector(v, none, 0, 16, 16, 16, 1, 16, 16, 16, 2, 16, 16, 16, 3, 16, 16, 16)));
        f4_store(to + 4, f4_from_ints((u4)__builtin_shufflevector(v, none, 4, 16, 16, 16, 5, 16, 16, 16, 6, 16, 16, 16, 7, 16, 16, 16)));
        return;
    }
    uint64_t window = 0;
    for (uint32_t i = 0; i < bits; i++) window |= (uint64_t)from[i] << 8 * i;
    for (uint32_t i = 0; i < 8; i++) to[i] = (float)(uint32_t)(window >> bits * i & ((1u << bits) - 1));
}

// Sixteen bytes of codes as floats.
INLINE void unpack_bytes(u8x16 v, float *to) {
    u8x16 zero = {0};
    u8x16 low = __builtin_shufflevector(v, zero, 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16);
    u8x16 high = __builtin_shufflevector(v, zero, 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15, 16);
    u16x8 none = {0}, a = (u16x8)low, b = (u16x8)high;
    f4_store(to, f4_from_ints((u4)__builtin_shufflevector(a, none, 0, 8, 1, 8, 2, 8, 3, 8)));
    f4_store(to + 4, f4_from_ints((u4)__builtin_shufflevector(a, none, 4, 8, 5, 8, 6, 8, 7, 8)));
    f4_store(to + 8, f4_from_ints((u4)__builtin_shufflevector(b, none, 0, 8, 1, 8, 2, 8, 3, 8)));
    f4_store(to + 12, f4_from_ints((u4)__builtin_shufflevector(b, none, 4, 8, 5, 8, 6, 8, 7, 8)));
}

// 32 codes as floats.
INLINE void unpack32(const uint8_t *from, uint32_t bits, float *to) {
    if (bits == 4) {
        u8x16 v = (u8x16)u4_load(from), low = v & 15, high = (u8x16)((u16x8)v >> 4) & 15;
        unpack_bytes(__builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), to);
        unpack_bytes(__builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), to + 16);
    } else if (bits == 8) {
        unpack_bytes((u8x16)u4_load(from), to);
        unpack_bytes((u8x16)u4_load(from + 16), to + 16);
    } else {
        for (uint32_t i = 0; i < 4; i++) unpack8(from + i * bits, bits, to + 8 * i);
    }
}

// Scale and bias of a group, in all lanes.
INLINE void load_group(const Quantized *q, size_t g, f4 *scale, f4 *bias) {
    *scale = f4_splat(load_float(q->scales, g, q->dtype_scales));
    *bias = f4_splat(load_float(q->biases, g, q->dtype_scales));
}

// Sixteen codes of six bits as floats: four fill three bytes, which become a word.
INLINE void unpack_sixes(const uint8_t *from, float *to) {
    const uint32_t *words = (const uint32_t *)from;
    u8x16 v = (u8x16)(u4){words[0], words[1], words[2], 0};
    u4 w = (u4)__builtin_shufflevector(v, v, 0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15);
    f4 a = f4_from_ints(w & 63), b = f4_from_ints(w >> 6 & 63), c = f4_from_ints(w >> 12 & 63), d = f4_from_ints(w >> 18);
    f4_transpose(&a, &b, &c, &d);
    f4_store(to, a), f4_store(to + 4, b), f4_store(to + 8, c), f4_store(to + 12, d);
}

// The numbers of a matrix without biases, times their scales: eight, and sixteen of one group, from a multiple of so many elements on.
INLINE void eight_numbers(const Quantized *q, size_t element, float *to) {
    if (q->mode == MODE_SYMMETRIC) {
        f4 scale = f4_splat(load_float(q->scales, element / q->group, q->dtype_scales)), middle = f4_splat((float)(1u << (q->bits - 1)));
        unpack8(q->codes + element / 8 * q->bits, q->bits, to);
        for (uint32_t i = 0; i < 8; i += 4) f4_store(to + i, (f4_load(to + i) - middle) * scale);
        return;
    }
    small_floats8(q->codes + element / 8 * q->bits, q->mode, scale_value(q->scales[element / q->group], q->mode), to);
}

INLINE void sixteen_numbers(const Quantized *q, size_t element, float *to) {
    if (q->mode != MODE_SYMMETRIC) {
        small_floats16(q->codes + element / 8 * q->bits, q->mode, scale_value(q->scales[element / q->group], q->mode), to);
        return;
    }
    if (q->bits != 6) {
        eight_numbers(q, element, to), eight_numbers(q, element + 8, to + 8);
        return;
    }
    f4 scale = f4_splat(load_float(q->scales, element / q->group, q->dtype_scales));
    unpack_sixes(q->codes + element / 8 * 6, to);
    for (uint32_t i = 0; i < 16; i += 4) f4_store(to + i, (f4_load(to + i) - f4_splat(32)) * scale);
}

// Columns first..first+count-1 of a row of such numbers, both multiples of 16.
INLINE void row_numbers(const Quantized *q, uint32_t row, uint32_t first, uint32_t count, float *to) {
    size_t element = (size_t)row * q->columns + first;
    for (uint32_t i = 0; i < count; i += 16) sixteen_numbers(q, element + i, to + i);
}

// Columns first..first+count-1 of a row in float32, without rounding to the dtype of the scales; both multiples of the group's least.
INLINE void dequantize_floats(const Quantized *q, uint32_t row, uint32_t first, uint32_t count, float *to) {
    if (q->mode != MODE_AFFINE) {
        row_numbers(q, row, first, count, to);
        return;
    }
    const uint8_t *codes = q->codes + ((size_t)row * q->columns + first) / 8 * q->bits;
    size_t groups = (size_t)row * (q->columns / q->group);
    for (uint32_t i = 0; i < count; i += 32, codes += 4 * q->bits) {
        f4 scale, bias;
        load_group(q, groups + (first + i) / q->group, &scale, &bias);
        unpack32(codes, q->bits, to + i);
        for (uint32_t j = i; j < i + 32; j += 4) f4_store(to + j, f4_fma(f4_load(to + j), scale, bias));
    }
}

#endif
