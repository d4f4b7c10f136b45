// Functions that the kernels of attention and of its gradients share: products of a block of rows with a piece of keys, and masks.
//
// Spec constants 6 and 7 of each are MASK_MODE and DTYPE_MASK, buffer 3 is the mask.

#ifndef VKMX_WASM_ATTENTION_TILES_H
#define VKMX_WASM_ATTENTION_TILES_H
#include "simd.h"

// STRIDE: floats between rows, one cache line more than a power of two, so that they do not all fall into the same sets.
enum { ROWS = 16, KEYS = 32, MAX_DIM = 256, STRIDE = MAX_DIM + 16 };
#define NEGATIVE_INFINITY (-__builtin_inff())
#define LOWEST (-0x1.fffffep127f)

// Rows of a piece of k or v, `stride` floats apart, a multiple of 4 of them. They are in place if they are float32 and
// need no padding, else in scratch.
typedef struct Piece {
    const float *rows;
    ptrdiff_t stride;
    uint32_t keys;
} Piece;

INLINE uint32_t padded(uint32_t dim) { return (dim + 3) & ~3u; }

// scores[i][j] = q[i] . k[j] * factor. Two rows against four keys: eight sums in registers. Rows beyond the block compute on stale
// values that nothing reads.
static void score_rows(float q_rows[][STRIDE], uint32_t rows, Piece k, uint32_t dim, float scores[][KEYS], f4 factor) {
    for (uint32_t i = 0; i < rows; i += 2) {
        const float *q = q_rows[i];
        for (uint32_t j = 0; j < k.keys; j += 4) {
            f4 s[2][4] = {{{0}}};
            const float *row = k.rows + j * k.stride;
            for (uint32_t d = 0; d < dim; d += 4) {
                f4 q0 = f4_load(q + d), q1 = f4_load(q + STRIDE + d);
#pragma clang loop unroll(full)
                for (uint32_t n = 0; n < 4; n++) {
                    f4 x = f4_load(row + n * k.stride + d);
                    s[0][n] = f4_fma(q0, x, s[0][n]);
                    s[1][n] = f4_fma(q1, x, s[1][n]);
                    keep_order(&s[0][n], &s[1][n]);
                }
            }
            f4_store(scores[i] + j, f4_sum4(s[0][0], s[0][1], s[0][2], s[0][3]) * factor);
            f4_store(scores[i + 1] + j, f4_sum4(s[1][0], s[1][1], s[1][2], s[1][3]) * factor);
        }
    }
}

// A query row.
typedef struct Place {
    uint32_t batch, head, query;
} Place;

// Whether a mask shows a key to a query; adds what it adds.
INLINE bool shows(const Call *call, ptrdiff_t element, float *score) {
    uint32_t dtype = call->spec[7];
    const uint8_t *mask = call->buffer[3] + element * (ptrdiff_t)DTYPE_BYTES(dtype);
    if (call->spec[6] == MASK_BOOL) return *mask;
    *score += load_float(mask, 0, dtype);
    return !(*score <= LOWEST);
}

// Masks the scores of keys first .. first + count - 1 of a query, and those after it. `ahead` is how much further than
// its own number a query sees when the mask is causal.
static void mask_keys(const Call *call, const int32_t *strides, Place at, int64_t ahead, uint32_t first, uint32_t count, float *scores) {
    for (uint32_t j = count; j < KEYS; j++) scores[j] = NEGATIVE_INFINITY;
    if (call->spec[6] == MASK_CAUSAL) {
        int64_t seen = (int64_t)at.query + ahead + 1 - first;
        for (int64_t j = seen < 0 ? 0 : seen; j < count; j++) scores[j] = NEGATIVE_INFINITY;
    } else if (call->spec[6] != MASK_NONE) {
        ptrdiff_t row = (ptrdiff_t)at.batch * strides[0] + (ptrdiff_t)at.head * strides[1] + (ptrdiff_t)at.query * strides[2];
        for (uint32_t j = 0; j < count; j++) {
            if (!shows(call, row + (ptrdiff_t)(first + j) * strides[3], scores + j)) scores[j] = NEGATIVE_INFINITY;
        }
    }
}

// Lane n of x in all lanes.
INLINE f4 lane(f4 x, uint32_t n) {
    switch (n) {
        case 0: return __builtin_shufflevector(x, x, 0, 0, 0, 0);
        case 1: return __builtin_shufflevector(x, x, 1, 1, 1, 1);
        case 2: return __builtin_shufflevector(x, x, 2, 2, 2, 2);
        default: return __builtin_shufflevector(x, x, 3, 3, 3, 3);
    }
}

// `vectors` times four dims, from d on, of out += weights . v for two rows.
INLINE void add_dims(float *out, const float *weights, Piece v, uint32_t d, uint32_t vectors) {
    f4 o[2][4];
    for (uint32_t c = 0; c < vectors; c++) { o[0][c] = f4_load(out + d + 4 * c), o[1][c] = f4_load(out + STRIDE + d + 4 * c); }
    const float *row = v.rows + d;
    for (uint32_t j = 0; j < v.keys; j += 4) {
        f4 w0 = f4_load(weights + j), w1 = f4_load(weights + KEYS + j);
#pragma clang loop unroll(full)
        for (uint32_t n = 0; n < 4; n++, row += v.stride) {
            f4 x0 = lane(w0, n), x1 = lane(w1, n);
#pragma clang loop unroll(full)
            for (uint32_t c = 0; c < vectors; c++) {
                f4 x = f4_load(row + 4 * c);
                o[0][c] = f4_fma(x0, x, o[0][c]);
                o[1][c] = f4_fma(x1, x, o[1][c]);
                keep_order(&o[0][c], &o[1][c]);
            }
        }
    }
    for (uint32_t c = 0; c < vectors; c++) { f4_store(out + d + 4 * c, o[0][c]), f4_store(out + STRIDE + d + 4 * c, o[1][c]); }
}

// out += weights . v, two rows and sixteen dims at a time.
static void add_rows(float out[][STRIDE], uint32_t rows, float weights[][KEYS], Piece v, uint32_t dim) {
    for (uint32_t i = 0; i < rows; i += 2) {
        uint32_t d = 0;
        for (; d + 16 <= dim; d += 16) add_dims(out[i], weights[i], v, d, 4);
        for (; d < dim; d += 4) add_dims(out[i], weights[i], v, d, 1);
    }
}

#endif
