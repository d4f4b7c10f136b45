// Kernels norm_vjp and norm_weight_vjp: gradients of rows through their norm, and of the norm's weight. See
// shaders/ops/norm/norm_vjp.comp.
//
// A row is read in runs of float32, in place where it lies so; sums of a row are float32 in eight lanes.

#include "exponential.h"

enum { RUN = 512 };

// The statistics of a row's norm: its mean, or 0, and 1 / sqrt(mean of squares + eps).
typedef struct Norm {
    float mean, scale;
} Norm;

static const float *run_of(const uint8_t *from, size_t first, size_t n, uint32_t dtype, float *scratch) {
    if (dtype == DTYPE_F32) return (const float *)from + first;
    load_floats(scratch, from, first, n, dtype);
    return scratch;
}

static float mean_of(const uint8_t *x, size_t base, size_t cols, uint32_t dtype) {
    float run[RUN], sum = 0;
    for (size_t i = 0; i < cols; i += RUN) {
        size_t n = min_u32(RUN, (uint32_t)(cols - i));
        sum += sum_floats(run_of(x, base + i, n, dtype, run), n);
    }
    return sum / (float)cols;
}

// The sums of d^2, of d g and of g in a run, d being x - mean.
INLINE void add_sums(const float *x, const float *g, size_t n, float mean, float sums[3]) {
    f4 squares[2] = {{0}}, products[2] = {{0}}, all[2] = {{0}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 2; k++) {
            f4 d = f4_load(x + i + 4 * k) - mean, c = f4_load(g + i + 4 * k);
            squares[k] = f4_fma(d, d, squares[k]);
            products[k] = f4_fma(d, c, products[k]);
            all[k] += c;
        }
    sums[0] += f4_sum(squares[0] + squares[1]);
    sums[1] += f4_sum(products[0] + products[1]);
    sums[2] += f4_sum(all[0] + all[1]);
    for (; i < n; i++) {
        float d = x[i] - mean;
        sums[0] += d * d;
        sums[1] += d * g[i];
        sums[2] += g[i];
    }
}

// ---- norm_vjp -------------------------------------------------------------------------------------------------------

// cotangent * weight of a run.
static const float *weighted_run(const Call *call, size_t base, size_t first, size_t n, float *scratch, float *weights) {
    uint32_t dtype_weight = call->spec[2], dtype_c = call->spec[3];
    const float *c = run_of(call->buffer[2], base + first, n, dtype_c, scratch);
    if (!call->spec[4]) return c;
    const float *w = run_of(call->buffer[1], first, n, dtype_weight, weights);
    for (size_t i = 0; i < n; i++) scratch[i] = c[i] * w[i];
    return scratch;
}

static uint32_t norm_grain(const struct RmsNormPush *p) { return chunk_grain(p->rows, 2 * p->cols, 1); }

uint32_t chunks_norm_vjp(const Call *call) {
    PUSH(RmsNormPush);
    return chunk_count(p->rows, norm_grain(p));
}

void k_norm_vjp(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(RmsNormPush);
    uint32_t grain = norm_grain(p), end = chunk_end(last, grain, p->rows);
    uint32_t dtype = call->spec[1];
    bool centered = call->spec[5];
    size_t cols = p->cols;
    float xs[RUN], gs[RUN], weights[RUN];
    for (size_t r = (size_t)chunk * grain; r < end; r++) {
        size_t base = r * cols;
        float mean = centered ? mean_of(call->buffer[0], base, cols, dtype) : 0, sums[3] = {0};
        for (size_t i = 0; i < cols; i += RUN) {
            size_t n = min_u32(RUN, (uint32_t)(cols - i));
            const float *x = run_of(call->buffer[0], base + i, n, dtype, xs);
            add_sums(x, weighted_run(call, base, i, n, gs, weights), n, mean, sums);
        }
        float s = 1.0f / m_sqrt(sums[0] / (float)cols + p->eps);
        float along = sums[1] / (float)cols * s * s, shift = centered ? sums[2] / (float)cols : 0;
        for (size_t i = 0; i < cols; i += RUN) {
            size_t n = min_u32(RUN, (uint32_t)(cols - i));
            const float *x = run_of(call->buffer[0], base + i, n, dtype, xs);
            const float *g = weighted_run(call, base, i, n, gs, weights);
            float *to = dtype == DTYPE_F32 ? (float *)call->buffer[3] + base + i : xs;
            for (size_t j = 0; j < n; j++) to[j] = s * (g[j] - shift - (x[j] - mean) * along);
            if (dtype != DTYPE_F32) store_floats(call->buffer[3], base + i, to, n, dtype);
        }
    }
}

// ---- norm_weight_vjp ------------------------------------------------------------------------------------------------

static Norm norm_of(const uint8_t *x, size_t base, size_t cols, uint32_t dtype, float eps, bool centered) {
    float run[RUN], squares = 0, mean = centered ? mean_of(x, base, cols, dtype) : 0;
    for (size_t i = 0; i < cols; i += RUN) {
        size_t n = min_u32(RUN, (uint32_t)(cols - i)), j = 0;
        const float *v = run_of(x, base + i, n, dtype, run);
        f4 a = {0}, b = {0};
        for (; j + 8 <= n; j += 8) {
            f4 d = f4_load(v + j) - mean, e = f4_load(v + j + 4) - mean;
            a = f4_fma(d, d, a);
            b = f4_fma(e, e, b);
        }
        squares += f4_sum(a + b);
        for (; j < n; j++) squares += (v[j] - mean) * (v[j] - mean);
    }
    return (Norm){mean, 1.0f / m_sqrt(squares / (float)cols + eps)};
}

// A chunk is a part.
uint32_t chunks_norm_weight_vjp(const Call *call) {
    PUSH(NormWeightPush);
    return p->cols ? p->parts : 0;
}

// The sums of a run of columns are made in a buffer, for all rows of the part. The norms of a few rows at a time come
// first.
void k_norm_weight_vjp(const Call *call, uint32_t chunk, uint32_t last) {
    enum { ROWS = 16 };
    PUSH(NormWeightPush);
    uint32_t dtype = call->spec[1], dtype_c = call->spec[2], dtype_out = call->spec[3];
    bool centered = call->spec[4];
    size_t cols = p->cols, each = chunk_count(p->rows, p->parts);
    float xs[RUN], cs[RUN], sums[RUN];
    for (; chunk < last; chunk++) {
        size_t from = chunk * each, to = from + each < p->rows ? from + each : p->rows;
        for (size_t r = from; r == from || r < to; r += ROWS) {
            Norm norms[ROWS];
            size_t rows = r < to ? min_u32(ROWS, (uint32_t)(to - r)) : 0;
            for (size_t k = 0; k < rows; k++) norms[k] = norm_of(call->buffer[0], (r + k) * cols, cols, dtype, p->eps, centered);
            for (size_t i = 0; i < cols; i += RUN) {
                size_t n = min_u32(RUN, (uint32_t)(cols - i));
                if (r == from) __builtin_memset(sums, 0, sizeof sums);
                else load_floats(sums, call->buffer[2], chunk * cols + i, n, dtype_out);
                for (size_t k = 0; k < rows; k++) {
                    const float *x = run_of(call->buffer[0], (r + k) * cols + i, n, dtype, xs);
                    const float *c = run_of(call->buffer[1], (r + k) * cols + i, n, dtype_c, cs);
                    float mean = norms[k].mean, scale = norms[k].scale;
                    for (size_t j = 0; j < n; j++) sums[j] += c[j] * ((x[j] - mean) * scale);
                }
                store_floats(call->buffer[2], chunk * cols + i, sums, n, dtype_out);
            }
        }
    }
}
