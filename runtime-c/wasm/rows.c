// Kernels softmax, rms_norm and rope: a contiguous row of floats at a time, float32 inside.

#include "../../shaders/include/math/angle.h"
#include "exponential.h"

enum { RUN = 512 };

// Rows of a chunk.
static uint32_t row_grain(uint32_t rows, uint32_t cols) { return chunk_grain(rows, cols, 1); }

// ---- softmax --------------------------------------------------------------------------------------------------------

static float max_of(const uint8_t *in, size_t base, size_t cols, uint32_t dtype) {
    f4 most = f4_splat(-__builtin_inff());
    size_t i = 0;
    for (; i + 4 <= cols; i += 4) most = f4_max(most, f4_load_as(in, base + i, dtype));
    float best = most[0];
    for (int l = 1; l < 4; l++) best = most[l] > best ? most[l] : best;
    for (; i < cols; i++) {
        float x = load_float(in, base + i, dtype);
        best = x > best ? x : best;
    }
    return best;
}

// exp(x - most) of a run, into y; gives their sum. NaN and a maximum of -inf make the sum NaN.
static float exp_run(const uint8_t *in, size_t first, size_t n, uint32_t dtype, float most, float *y) {
    if (dtype == DTYPE_F32) return sum_exponentials(y, (const float *)in + first, n, most);
    load_run(y, in, first, n, dtype);
    return sum_exponentials(y, y, n, most);
}

// float32 output holds the exponentials until their sum is known; for 16-bit output, rows longer than a run compute
// them again.
uint32_t chunks_softmax(const Call *call) {
    PUSH(RowsPush);
    return chunk_count(p->rows, row_grain(p->rows, p->cols));
}

void k_softmax(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(RowsPush);
    uint32_t grain = row_grain(p->rows, p->cols), end = chunk_end(last, grain, p->rows);
    uint32_t dtype = call->spec[1], dtype_out = call->spec[2];
    const uint8_t *in = call->buffer[0];
    size_t cols = p->cols;
    bool direct = dtype_out == DTYPE_F32;
    float buffer[RUN];
    for (size_t r = (size_t)chunk * grain; r < end; r++) {
        size_t base = r * cols;
        float most = max_of(in, base, cols, dtype), *out = (float *)call->buffer[1] + base;
        double sum = 0;
        for (size_t i = 0; i < cols; i += RUN) {
            sum += exp_run(in, base + i, min_u32(RUN, (uint32_t)(cols - i)), dtype, most, direct ? out + i : buffer);
        }
        float scale = (float)(1.0 / sum);
        for (size_t i = 0; i < cols; i += RUN) {
            size_t n = min_u32(RUN, (uint32_t)(cols - i));
            float *y = direct ? out + i : buffer;
            if (!direct && cols > RUN) exp_run(in, base + i, n, dtype, most, y);
            for (size_t j = 0; j < n; j++) y[j] *= scale;
            if (!direct) store_floats(call->buffer[1], base + i, y, n, dtype_out);
        }
    }
}

// ---- rms_norm -------------------------------------------------------------------------------------------------------

// y = x * scale * weight; the dtype is a constant at every call.
INLINE void scale_row(float *y, const float *x, float scale, const uint8_t *weight, size_t cols, uint32_t dtype) {
    for (size_t i = 0; i < cols; i += 4) f4_store(y + i, f4_load(x + i) * scale * f4_load_as(weight, i, dtype));
}

uint32_t chunks_rms_norm(const Call *call) {
    PUSH(RmsNormPush);
    return chunk_count(p->rows, row_grain(p->rows, p->cols));
}

void k_rms_norm(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(RmsNormPush);
    uint32_t grain = row_grain(p->rows, p->cols), end = chunk_end(last, grain, p->rows);
    uint32_t dtype = call->spec[1], dtype_weight = call->spec[2], dtype_out = call->spec[3];
    bool has_weight = call->spec[4];
    size_t cols = p->cols;
    float x[RUN], weight[RUN];
    for (size_t r = (size_t)chunk * grain; r < end; r++) {
        size_t base = r * cols, i = 0;
        f4 a = f4_splat(0), b = a;
        for (; i + 8 <= cols; i += 8) {
            f4 u = f4_load_as(call->buffer[0], base + i, dtype), v = f4_load_as(call->buffer[0], base + i + 4, dtype);
            a = f4_fma(u, u, a);
            b = f4_fma(v, v, b);
        }
        float squares = f4_sum(a + b);
        for (; i < cols; i++) {
            float v = load_float(call->buffer[0], base + i, dtype);
            squares += v * v;
        }
        float scale = 1.0f / m_sqrt(squares / (float)cols + p->eps);
        if (has_weight && dtype == DTYPE_F32 && dtype_out == DTYPE_F32 && cols % 4 == 0) {
            const float *from = (const float *)call->buffer[0] + base;
            float *to = (float *)call->buffer[2] + base;
            if (dtype_weight == DTYPE_F32) scale_row(to, from, scale, call->buffer[1], cols, DTYPE_F32);
            else if (dtype_weight == DTYPE_BF16) scale_row(to, from, scale, call->buffer[1], cols, DTYPE_BF16);
            else scale_row(to, from, scale, call->buffer[1], cols, DTYPE_F16);
            continue;
        }
        for (i = 0; i < cols; i += RUN) {
            size_t n = min_u32(RUN, (uint32_t)(cols - i));
            load_floats(x, call->buffer[0], base + i, n, dtype);
            for (size_t j = 0; j < n; j++) x[j] *= scale;
            if (has_weight) {
                load_floats(weight, call->buffer[1], i, n, dtype_weight);
                round_run(x, n, dtype_out);
                round_run(weight, n, dtype_out);
                for (size_t j = 0; j < n; j++) x[j] *= weight[j];
            }
            store_floats(call->buffer[2], base + i, x, n, dtype_out);
        }
    }
}

// ---- rope -----------------------------------------------------------------------------------------------------------

// Row t of head h in batch b; strides may be negative.
static const uint8_t *x_row(const Call *call, uint32_t b, uint32_t h, uint32_t t) {
    PUSH(RopePush);
    ptrdiff_t at = (ptrdiff_t)b * p->x_strides[0] + (ptrdiff_t)h * p->x_strides[1] + (ptrdiff_t)t * p->x_strides[2];
    return call->buffer[0] + at * (ptrdiff_t)DTYPE_BYTES(call->spec[1]);
}

// Rotates pairs first .. first + n - 1 of one row, whose sines and cosines are given.
static void rotate(const Call *call, const uint8_t *x, size_t to, size_t first, size_t n, const float *sines, const float *cosines) {
    PUSH(RopePush);
    uint32_t dtype = call->spec[1];
    size_t step = call->spec[2] ? 2 : 1, other = call->spec[2] ? 1 : p->rope_dims / 2, from = first * step;
    uint8_t *y = call->buffer[3];
    to += from;
    size_t i = 0;
    if (step == 1 && dtype == DTYPE_F32) {
        const float *xs = (const float *)x + from;
        float *ys = (float *)y + to;
        for (; i + 4 <= n; i += 4) {
            f4 a = f4_load(xs + i), b = f4_load(xs + other + i), s = f4_load(sines + i), c = f4_load(cosines + i);
            f4_store(ys + i, a * c - b * s);
            f4_store(ys + other + i, a * s + b * c);
        }
    }
    for (; i < n; i++) {
        float a = load_float(x, from + i * step, dtype), b = load_float(x, from + i * step + other, dtype);
        store_float(y, to + i * step, dtype, a * cosines[i] - b * sines[i]);
        store_float(y, to + i * step + other, dtype, a * sines[i] + b * cosines[i]);
    }
}

// A chunk is some positions of one batch row.
static uint32_t rope_grain(const struct RopePush *p) { return chunk_grain(p->seq, p->heads * p->dims, 1); }

uint32_t chunks_rope(const Call *call) {
    PUSH(RopePush);
    return p->batch * chunk_count(p->seq, rope_grain(p));
}

// Positions first..last-1 of batch row b. Angles are the same for all heads, so heads are the inner loop.
static void rope_positions(const Call *call, uint32_t b, uint32_t first_position, uint32_t last_position) {
    PUSH(RopePush);
    uint32_t dtype = call->spec[1], offset_mode = call->spec[3], pairs = p->rope_dims / 2;
    bool has_freqs = call->spec[4];
    const int32_t *offsets = (const int32_t *)call->buffer[1];
    int32_t offset = offset_mode == OFFSET_PUSH ? p->offset : offsets[offset_mode == OFFSET_BATCH ? b : 0];
    size_t bytes = DTYPE_BYTES(dtype), skip = p->rope_dims * bytes;
    Scaled turns[RUN];
    float sines[RUN], cosines[RUN];
    for (uint32_t first = 0; first < pairs; first += RUN) {
        uint32_t n = min_u32(RUN, pairs - first);
        for (uint32_t i = 0; i < n; i++) {
            Scaled frequency = has_freqs ? scaled_reciprocal(scaled_float(((const float *)call->buffer[2])[first + i]))
                                         : rope_frequency(first + i, p->rope_dims, p->log2_base);
            turns[i] = turns_per_position(frequency, p->scale);
        }
        for (uint32_t t = first_position; t < last_position; t++) {
            for (uint32_t i = 0; i < n; i++) {
                uint32_t turn = turn_at((int32_t)t + offset, turns[i]);
                sines[i] = turn_sin(turn);
                cosines[i] = turn_cos(turn);
            }
            for (uint32_t h = 0; h < p->heads; h++) {
                size_t to = (((size_t)b * p->heads + h) * p->seq + t) * p->dims;
                const uint8_t *x = x_row(call, b, h, t);
                rotate(call, x, to, first, n, sines, cosines);
                if (first == 0 && p->rope_dims < p->dims) {
                    __builtin_memcpy(call->buffer[3] + to * bytes + skip, x + skip, p->dims * bytes - skip);
                }
            }
        }
    }
}

void k_rope(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(RopePush);
    uint32_t grain = rope_grain(p), chunks = chunk_count(p->seq, grain);
    for (; chunk < last; chunk++) {
        uint32_t i = chunk % chunks;
        rope_positions(call, chunk / chunks, i * grain, chunk_end(i + 1, grain, p->seq));
    }
}
