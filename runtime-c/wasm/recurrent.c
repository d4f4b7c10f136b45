// Kernels gated_delta and causal_conv of recurrent layers. See shaders/ops/recurrent/.

#include "../../shaders/include/math/math.h"
#include "simd.h"

// ---- gated_delta ----------------------------------------------------------------------------------------------------

enum { MAX_KEYS = 256 };

// Spec constants.
enum { KEY_DIM = 1, DTYPE_Q, DTYPE_K, DTYPE_V, NORMALIZED, HAS_MASK };

static uint32_t delta_rows(const struct GatedDeltaPush *p) { return p->batch * p->heads * p->values; }
static uint32_t delta_grain(const Call *call, const struct GatedDeltaPush *p) {
    return chunk_grain(delta_rows(p), p->tokens * call->spec[KEY_DIM], 1);
}

static float dot(const float *a, const float *b, uint32_t n) {
    f4 low = f4_splat(0), high = low;
    for (uint32_t i = 0; i < n; i += 8) {
        low = f4_fma(f4_load(a + i), f4_load(b + i), low);
        high = f4_fma(f4_load(a + i + 4), f4_load(b + i + 4), high);
    }
    return f4_sum(low + high);
}

static size_t place_of(const int32_t *strides, uint32_t batch, uint32_t token, uint32_t head) {
    return (size_t)(int32_t)batch * (size_t)strides[0] + (size_t)(int32_t)token * (size_t)strides[1] +
           (size_t)(int32_t)head * (size_t)strides[2];
}

// `count` rows of the state of a head from `row` on, through all tokens. The state stays in the output.
static void delta_head(const Call *call, const struct GatedDeltaPush *p, uint32_t batch, uint32_t head, uint32_t row, uint32_t count) {
    uint32_t keys = call->spec[KEY_DIM], of_keys = head / (p->heads / p->key_heads);
    size_t first = ((size_t)(batch * p->heads + head) * p->values + row) * keys;
    float *out = (float *)call->buffer[7], *state = out + (size_t)p->batch * p->tokens * p->heads * p->values + first;
    __builtin_memcpy(state, (const float *)call->buffer[5] + first, (size_t)count * keys * sizeof(float));
    float q[MAX_KEYS], k[MAX_KEYS];
    for (uint32_t t = 0; t < p->tokens; t++) {
        size_t token = (size_t)batch * p->tokens + t, at = (token * p->heads + head);
        float *y = out + at * p->values + row;
        if (call->spec[HAS_MASK] && call->buffer[6][token] == 0) {
            for (uint32_t i = 0; i < count; i++) y[i] = 0;
            continue;
        }
        load_run(q, call->buffer[0], place_of(p->q_strides, batch, t, of_keys), keys, call->spec[DTYPE_Q]);
        load_run(k, call->buffer[1], place_of(p->k_strides, batch, t, of_keys), keys, call->spec[DTYPE_K]);
        float q_scale = 1, k_scale = 1;
        if (call->spec[NORMALIZED]) {
            k_scale = 1 / __builtin_sqrtf(dot(k, k, keys) + p->eps);
            q_scale = 1 / __builtin_sqrtf((dot(q, q, keys) + p->eps) * (float)keys);
        }
        float both = dot(k, q, keys) * k_scale * q_scale;
        float decay = ((const float *)call->buffer[3])[at], rate = ((const float *)call->buffer[4])[at];
        size_t values = place_of(p->v_strides, batch, t, head) + row;
        for (uint32_t i = 0; i < count; i++) {
            float *s = state + (size_t)i * keys;
            float v = load_float(call->buffer[2], values + i, call->spec[DTYPE_V]);
            float update = rate * (v - decay * dot(s, k, keys) * k_scale);
            y[i] = decay * dot(s, q, keys) * q_scale + update * both;
            f4 by = f4_splat(decay), add = f4_splat(update * k_scale);
            for (uint32_t j = 0; j < keys; j += 4) f4_store(s + j, by * f4_load(s + j) + add * f4_load(k + j));
        }
    }
}

uint32_t chunks_gated_delta(const Call *call) {
    PUSH(GatedDeltaPush);
    return chunk_count(delta_rows(p), delta_grain(call, p));
}

void k_gated_delta(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(GatedDeltaPush);
    uint32_t grain = delta_grain(call, p), end = chunk_end(last, grain, delta_rows(p));
    for (uint32_t at = chunk * grain; at < end;) {
        uint32_t row = at % p->values, head = at / p->values;
        uint32_t count = p->values - row < end - at ? p->values - row : end - at;
        delta_head(call, p, head / p->heads, head % p->heads, row, count);
        at += count;
    }
}

// ---- causal_conv ----------------------------------------------------------------------------------------------------

enum { RUN = 256, MAX_WINDOW = 8 };

// Spec constants.
enum { DTYPE_X = 1, DTYPE_BEFORE, DTYPE_WEIGHT, DTYPE_BIAS, SILU, HAS_BIAS, HAS_COUNTED };

static uint32_t conv_runs(const struct CausalConvPush *p) { return p->batch * ((p->features + RUN - 1) / RUN); }
static uint32_t conv_grain(const struct CausalConvPush *p) {
    return chunk_grain(conv_runs(p), (p->tokens + p->window) * p->window * RUN, 1);
}

// All tokens of a sequence, of the `n` features from `first` on. Inputs go round a ring of the last ones.
static void conv_run(const Call *call, const struct CausalConvPush *p, uint32_t batch, uint32_t first, uint32_t n) {
    uint32_t window = p->window, past = window - 1, dtype = call->spec[DTYPE_X];
    float weights[MAX_WINDOW][RUN], inputs[MAX_WINDOW][RUN], bias[RUN] = {0}, y[RUN];
    for (uint32_t f = 0; f < n; f++) {
        for (uint32_t i = 0; i < window; i++)
            weights[i][f] = load_float(call->buffer[2], (size_t)(first + f) * window + i, call->spec[DTYPE_WEIGHT]);
    }
    if (call->spec[HAS_BIAS]) load_run(bias, call->buffer[3], first, n, call->spec[DTYPE_BIAS]);
    int32_t given = call->spec[HAS_COUNTED] ? *(const int32_t *)call->buffer[4] : (int32_t)p->tokens;
    uint32_t counted = given<0 ? 0 : given>(int32_t) p->tokens ? p->tokens : (uint32_t)given;
    uint8_t *out = call->buffer[5];
    size_t kept = (size_t)p->batch * p->tokens + (size_t)batch * past;
    for (uint32_t at = 0; at < past + p->tokens; at++) {
        float *x = inputs[at % window];
        if (at < past) {
            load_run(x, call->buffer[0], ((size_t)batch * past + at) * p->features + first, n, call->spec[DTYPE_BEFORE]);
            round_run(x, n, dtype);
        } else {
            load_run(x, call->buffer[1], ((size_t)batch * p->tokens + at - past) * p->features + first, n, dtype);
        }
        if (at >= counted && at < counted + past) store_floats(out, (kept + at - counted) * p->features + first, x, n, dtype);
        if (at < past) continue;
        __builtin_memcpy(y, bias, n * sizeof(float));
        for (uint32_t i = 0; i < window; i++) {
            const float *from = inputs[(at - past + i) % window], *w = weights[i];
            for (uint32_t f = 0; f < n; f++) y[f] += from[f] * w[f];
        }
        round_run(y, n, dtype);
        if (call->spec[SILU])
            for (uint32_t f = 0; f < n; f++) y[f] = y[f] / (1 + m_exp(-y[f]));
        store_floats(out, ((size_t)batch * p->tokens + at - past) * p->features + first, y, n, dtype);
    }
}

uint32_t chunks_causal_conv(const Call *call) {
    PUSH(CausalConvPush);
    return chunk_count(conv_runs(p), conv_grain(p));
}

void k_causal_conv(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(CausalConvPush);
    uint32_t grain = conv_grain(p), end = chunk_end(last, grain, conv_runs(p)), runs = (p->features + RUN - 1) / RUN;
    for (uint32_t at = chunk * grain; at < end; at++) {
        uint32_t first = at % runs * RUN;
        conv_run(call, p, at / runs, first, p->features - first < RUN ? p->features - first : RUN);
    }
}
