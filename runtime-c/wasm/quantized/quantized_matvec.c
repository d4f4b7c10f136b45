// Rows of x times a quantized w (n, k), one after the other: each streams w once, four of its rows at a time.
//
// A group of x becomes integers of 28 bits times one scale, in two parts of 16. One instruction multiplies eight codes
// with a part and adds them up, exactly. So products are as good as in floats. Codes are not centred weights: with one
// part, the error is half a 32767th of the group's largest value per element. That adds up to 5e-3 in the products of
// MLX's tests. x is reordered to match the codes at each position of eight 16-bit words, so unpacking a position is a
// shift and a mask. The bias of a group is folded into bias * sum(x). Widths that do not divide 16 are multiplied in
// floats.

#include "quantized/quantized_product.h"

// Longest row of x for the fast path; longer ones go through the dense core. x = step * (high * 2^LOW_BITS + low).
// The largest value of a group is LEVELS steps, which rounding may lift, but not beyond MOST.
enum { MAX_K = LONGEST_ROW, LOW_BITS = 12, LEVELS = 32766 << LOW_BITS, MOST = 32767 << LOW_BITS };

typedef struct Row {
    union {
        int16_t fixed[2 * MAX_K]; // in the order of the codes of 16-byte blocks: [block][position in the word][high, low][word]
        float x[MAX_K];
    };
    float steps[MAX_K / 32]; // per group: x = step * fixed
    float sums[MAX_K / 32];
} Row;

// Whether whole 16-byte blocks of codes share a group and no code crosses a 16-bit word. Codes of one bit, of which few models are made, have
// no form of the fast path.
INLINE bool divides_words(uint32_t bits, uint32_t group) { return bits > 1 && 16 % bits == 0 && group * bits % 128 == 0; }

static void prepare(Row *row, const uint8_t *x, uint32_t k, uint32_t dtype_x, uint32_t bits, uint32_t group, bool fixed) {
    uint32_t per_word = 16 / bits;
    for (uint32_t first = 0; first < k; first += group) {
        float values[128], most = 0;
        f4 sum = {0};
        load_run(values, x, first, group, dtype_x);
        for (uint32_t i = 0; i < group; i += 4) sum += f4_load(values + i);
        row->sums[first / group] = f4_sum(sum);
        if (!fixed) {
            __builtin_memcpy(row->x + first, values, group * sizeof(float));
            continue;
        }
        for (uint32_t i = 0; i < group; i++) {
            float magnitude = __builtin_fabsf(values[i]);
            most = magnitude > most ? magnitude : most;
        }
        // Infinity and NaN cannot be held: they reach the result through the sum.
        float step = most > 2e-30f && most < 3e38f ? most / LEVELS : 1, inverse = 1 / step;
        row->steps[first / group] = step;
        for (uint32_t i = 0; i < group; i++) {
            uint32_t in_block = i % (8 * per_word), word = in_block / per_word, position = in_block % per_word;
            float rounded = __builtin_rintf(values[i] * inverse);
            int32_t code = rounded >= -MOST && rounded <= MOST ? (int32_t)rounded : 0;
            int32_t high = (code + (1 << (LOW_BITS - 1))) >> LOW_BITS;
            int16_t *to = row->fixed + 2 * (first + i - in_block + position * 8) + word;
            to[0] = (int16_t)high;
            to[8] = (int16_t)(code - (high << LOW_BITS));
        }
    }
}

// Four rows of w, `apart` from each other; `bits` and `dtype` are constants at every call.
INLINE f4 dot4(const Row *row, const Quantized *w, uint32_t n, uint32_t apart, uint32_t last, uint32_t bits, uint32_t dtype) {
    const uint8_t *codes[4], *scales[4], *biases[4];
    f4 total[4] = {{0}}, shift = {0};
    uint32_t groups = w->columns / w->group;
    for (uint32_t r = 0; r < 4; r++) {
        size_t at = min_u32(n + r * apart, last);
        codes[r] = w->codes + at * (w->columns / 8 * bits);
        scales[r] = w->scales + at * groups * DTYPE_BYTES(dtype);
        biases[r] = w->biases + at * groups * DTYPE_BYTES(dtype);
    }
    const int16_t *x = row->fixed;
    u16x8 mask = {0};
    mask += (uint16_t)((1u << bits) - 1);
    for (uint32_t g = 0; g < groups; g++) {
        i4 high[4] = {{0}}, low[4] = {{0}};
        for (uint32_t i = 0; i < w->group; i += 128 / bits) {
            u16x8 words[4];
            for (uint32_t r = 0; r < 4; r++) {
                words[r] = (u16x8)u4_load(codes[r]);
                codes[r] += 16;
            }
#pragma clang loop unroll(full)
            for (uint32_t shift = 0; shift < 16; shift += bits, x += 16) {
                i16x8 x_high = (i16x8)u4_load(x), x_low = (i16x8)u4_load(x + 8);
                for (uint32_t r = 0; r < 4; r++) {
                    u16x8 code = shift == 16 - bits ? words[r] >> (16 - bits) : words[r] >> shift & mask;
                    high[r] += i4_dot((i16x8)code, x_high);
                    low[r] += i4_dot((i16x8)code, x_low);
                }
            }
        }
        for (uint32_t r = 0; r < 4; r++) {
            f4 scale = f4_splat(load_float(scales[r], g, dtype) * row->steps[g]);
            f4 sum = __builtin_convertvector(high[r], f4) * (float)(1 << LOW_BITS) + __builtin_convertvector(low[r], f4);
            total[r] = f4_fma(sum, scale, total[r]);
            shift[r] += load_float(biases[r], g, dtype) * row->sums[g];
        }
    }
    return f4_sum4(total[0], total[1], total[2], total[3]) + shift;
}

// One row of w of any width.
static float dot1(const Row *row, const Quantized *w, uint32_t n) {
    const uint8_t *codes = w->codes + (size_t)n * (w->columns / 8 * w->bits);
    size_t g = (size_t)n * (w->columns / w->group);
    f4 total = {0};
    float shift = 0;
    for (uint32_t first = 0; first < w->columns; first += w->group, g++) {
        f4 part = {0};
        for (uint32_t k = first; k < first + w->group; k += 32, codes += 4 * w->bits) {
            float unpacked[32];
            unpack32(codes, w->bits, unpacked);
            for (uint32_t i = 0; i < 32; i += 4) part = f4_fma(f4_load(unpacked + i), f4_load(row->x + k + i), part);
        }
        total = f4_fma(part, f4_splat(load_float(w->scales, g, w->dtype_scales)), total);
        shift += load_float(w->biases, g, w->dtype_scales) * row->sums[first / w->group];
    }
    return f4_sum(total) + shift;
}

// One row of w without biases.
static float numbers_dot(const Row *row, const Quantized *w, uint32_t n) {
    f4 total[4] = {{0}};
    for (uint32_t k = 0; k < w->columns; k += 16) {
        float numbers[16];
        row_numbers(w, n, k, 16, numbers);
        for (uint32_t i = 0; i < 4; i++) total[i] = f4_fma(f4_load(numbers + 4 * i), f4_load(row->x + k + 4 * i), total[i]);
    }
    return f4_sum((total[0] + total[1]) + (total[2] + total[3]));
}

// Four rows of w of e2m1 codes, as dot4: a table has 256 times the doubled number of a code. Blocks of 16 bytes have the scales of one
// group, or of two that lie in halves of the sums.
INLINE f4 e2m1_dot4(const Row *row, const Quantized *w, uint32_t n, uint32_t apart, uint32_t last, uint32_t mode) {
    const uint8_t *codes[4], *scales[4];
    f4 total[4] = {{0}};
    for (uint32_t r = 0; r < 4; r++) {
        size_t at = min_u32(n + r * apart, last);
        codes[r] = w->codes + at * (w->columns / 2);
        scales[r] = w->scales + at * (w->columns / w->group);
    }
    const int16_t *x = row->fixed;
    u8x16 table = (u8x16)u4_load(E2M1_DOUBLED);
    u16x8 mask = {0};
    mask += 0x0f00;
    for (uint32_t block = 0; block < w->columns / 32; block++) {
        i4 high[4] = {{0}}, low[4] = {{0}};
        u16x8 words[4];
        for (uint32_t r = 0; r < 4; r++) {
            words[r] = (u16x8)u4_load(codes[r]);
            codes[r] += 16;
        }
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < 4; i++, x += 16) {
            i16x8 x_high = (i16x8)u4_load(x), x_low = (i16x8)u4_load(x + 8);
            for (uint32_t r = 0; r < 4; r++) {
                u16x8 code = (i == 3 ? words[r] >> 4 : words[r] << (8 - 4 * i)) & mask;
                i16x8 numbers = (i16x8)u8x16_look_up(table, (u8x16)code);
                high[r] += i4_dot(numbers, x_high);
                low[r] += i4_dot(numbers, x_low);
            }
        }
        float step = row->steps[block] * (1.0f / 512.0f);
        for (uint32_t r = 0; r < 4; r++) {
            f4 scale = f4_splat(step);
            if (mode == MODE_NVFP4) {
                float first = e4m3_value(scales[r][2 * block]), second = e4m3_value(scales[r][2 * block + 1]);
                scale *= (f4){first, first, second, second};
            } else {
                scale *= f4_splat(e8m0_value(scales[r][block]));
            }
            f4 sum = __builtin_convertvector(high[r], f4) * (float)(1 << LOW_BITS) + __builtin_convertvector(low[r], f4);
            total[r] = f4_fma(sum, scale, total[r]);
        }
    }
    return f4_sum4(total[0], total[1], total[2], total[3]);
}

INLINE void e2m1_row(const Row *row, const Quantized *w, uint32_t n, uint8_t *out, uint32_t dtype_out, uint32_t mode) {
    uint32_t quarter = (n + 3) / 4;
    for (uint32_t i = 0; i < quarter; i++) {
        f4 y = e2m1_dot4(row, w, i, quarter, n - 1, mode);
        for (uint32_t r = 0; r < 4 && i + r * quarter < n; r++) store_float(out, i + r * quarter, dtype_out, y[r]);
    }
}

// The four rows lie a quarter of w apart: four long streams that the hardware prefetches, which short neighbouring rows
// are not.
INLINE void multiply_row(const Row *row, const Quantized *w, uint32_t n, uint8_t *out, uint32_t dtype_out, uint32_t bits, uint32_t dtype) {
    uint32_t quarter = (n + 3) / 4;
    for (uint32_t i = 0; i < quarter; i++) {
        f4 y = dot4(row, w, i, quarter, n - 1, bits, dtype);
        for (uint32_t r = 0; r < 4 && i + r * quarter < n; r++) store_float(out, i + r * quarter, dtype_out, y[r]);
    }
}

// Whether the sums of all runs of 32 are numbers.
static bool all_finite(const Row *row, uint32_t k) {
    bool finite = true;
    for (uint32_t i = 0; i < k / 32; i++) finite &= row->sums[i] - row->sums[i] == 0;
    return finite;
}

// The row was prepared as the mode and the bits want it.
static void multiply_affine(const Row *row, const Quantized *w, uint32_t n, bool fixed, uint8_t *out, uint32_t dtype_out) {
    const uint32_t bits = w->bits, dtype = w->dtype_scales;
    if (!fixed)
        for (uint32_t i = 0; i < n; i++) store_float(out, i, dtype_out, dot1(row, w, i));
    else if (bits == 4 && dtype == DTYPE_BF16) multiply_row(row, w, n, out, dtype_out, 4, DTYPE_BF16);
    else if (bits == 4 && dtype == DTYPE_F32) multiply_row(row, w, n, out, dtype_out, 4, DTYPE_F32);
    else if (bits == 4) multiply_row(row, w, n, out, dtype_out, 4, dtype);
    else if (bits == 8) multiply_row(row, w, n, out, dtype_out, 8, dtype);
    else multiply_row(row, w, n, out, dtype_out, 2, dtype);
}

void quantized_row_of_many(const Quantized *w, uint32_t matrices, uint32_t n, bool exact, const uint8_t *x, uint32_t dtype_x,
                           uint8_t *const *out, uint32_t dtype_out) {
    const uint32_t bits = w->bits, k = w->columns;
    Row row;
    if (w->mode == MODE_AFFINE) {
        bool fixed = !exact && divides_words(bits, w->group);
        prepare(&row, x, k, dtype_x, bits, w->group, fixed);
        for (uint32_t m = 0; m < matrices; m++) multiply_affine(&row, w + m, n, fixed, out[m], dtype_out);
        return;
    }
    if (bits == 4 && k % 32 == 0 && !exact) {
        prepare(&row, x, k, dtype_x, bits, 32, true);
        if (all_finite(&row, k)) {
            for (uint32_t m = 0; m < matrices; m++) {
                if (w->mode == MODE_NVFP4) e2m1_row(&row, w + m, n, out[m], dtype_out, MODE_NVFP4);
                else e2m1_row(&row, w + m, n, out[m], dtype_out, MODE_MXFP4);
            }
            return;
        }
    }
    load_run(row.x, x, 0, k, dtype_x);
    for (uint32_t m = 0; m < matrices; m++)
        for (uint32_t i = 0; i < n; i++) store_float(out[m], i, dtype_out, numbers_dot(&row, w + m, i));
}

void quantized_row(const Quantized *w, uint32_t n, bool exact, const uint8_t *x, uint32_t dtype_x, uint8_t *out, uint32_t dtype_out) {
    quantized_row_of_many(w, 1, n, exact, x, dtype_x, &out, dtype_out);
}

INLINE uint32_t row_grain(const struct QuantizedMatmulPush *p) { return chunk_grain(p->n, p->k, 64); }

uint32_t row_chunks(const struct QuantizedMatmulPush *p) { return p->batch * p->m * chunk_count(p->n, row_grain(p)); }

void quantized_rows(const Call *call, uint32_t mode, bool exact, uint32_t first, uint32_t last) {
    PUSH(QuantizedMatmulPush);
    uint32_t dtype_x = call->spec[3], dtype_out = call->spec[5], grain = row_grain(p), cuts = chunk_count(p->n, grain);
    Quantized stack = {call->buffer[1], call->buffer[2], call->buffer[3], p->k, call->spec[1], call->spec[2], call->spec[4], mode};
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t row = chunk / cuts, from = chunk % cuts * grain, to = chunk_end(chunk % cuts + 1, grain, p->n);
        Quantized matrix = quantized_matrix(&stack, p->n, p->w_batch == 1 ? 0 : row / p->m), w = quantized_matrix(&matrix, 1, from);
        const uint8_t *x = call->buffer[0] + (size_t)row * p->k * DTYPE_BYTES(dtype_x);
        uint8_t *out = call->buffer[4] + ((size_t)row * p->n + from) * DTYPE_BYTES(dtype_out);
        quantized_row(&w, to - from, exact, x, dtype_x, out, dtype_out);
    }
}

// Whether rows of x stream w one by one; else the product goes through the dense core.
INLINE bool streams(const Call *call) {
    PUSH(QuantizedMatmulPush);
    uint32_t bits = call->spec[1], group = call->spec[2], mode = call->spec[8];
    bool fast = mode == MODE_AFFINE ? divides_words(bits, group) : p->m <= (bits == 4 ? 16 : 2);
    return p->k <= MAX_K && (fast || p->m <= 1);
}

uint32_t chunks_quantized_matvec(const Call *call) {
    PUSH(QuantizedMatmulPush);
    return streams(call) ? row_chunks(p) : product_chunks(p);
}

void k_quantized_matvec(const Call *call, uint32_t first, uint32_t last) {
    uint32_t mode = call->spec[8];
    if (streams(call)) quantized_rows(call, mode, false, first, last);
    else quantized_products(call, mode, true, first, last);
}
