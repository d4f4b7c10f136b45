// Kernels gated_delta and causal_conv of recurrent layers. See shaders/ops/recurrent/.

#include "../../shaders/include/math/math.h"
#include "simd.h"

// ---- gated_delta ----------------------------------------------------------------------------------------------------

enum { MAX_KEYS = 256 };

// Spec constants.
enum {
    KEY_DIM = 1,
    VALUE_DIM,
    KEY_HEADS,
    HEADS,
    DTYPE_Q,
    DTYPE_K,
    DTYPE_V,
    NORMALIZED,
    HAS_MASK,
    DELTA_SLOTS,
    GATED,
    DTYPE_GAMMA,
    DTYPE_BETA,
    DTYPE_GATE_BIAS,
    DTYPE_LOG_RATE
};

static uint32_t delta_rows(const Call *call, const struct GatedDeltaPush *p) {
    return p->batch * call->spec[HEADS] * call->spec[VALUE_DIM];
}
static uint32_t delta_grain(const Call *call, const struct GatedDeltaPush *p) {
    return chunk_grain(delta_rows(call, p), p->tokens * call->spec[KEY_DIM], 1);
}

// The index of the slot of a sequence: negative ones count from the end, and those outside are clamped.
static uint32_t slot_of(const void *slots, uint32_t batch, uint32_t count) {
    int64_t index = ((const int32_t *)slots)[batch];
    if (index < 0) index += count;
    return index < 0 ? 0 : index < count ? (uint32_t)index : count - 1;
}

static float dot(const float *a, const float *b, uint32_t n) {
    f4 low = f4_splat(0), high = low;
    for (uint32_t i = 0; i < n; i += 8) {
        low = f4_fma(f4_load(a + i), f4_load(b + i), low);
        high = f4_fma(f4_load(a + i + 4), f4_load(b + i + 4), high);
    }
    return f4_sum(low + high);
}

static size_t place_of(const int32_t *strides, uint32_t batch, uint32_t token, uint32_t feature) {
    return (size_t)(int32_t)batch * (size_t)strides[0] + (size_t)(int32_t)token * (size_t)strides[1] + feature;
}

// Rows of the state of a head of a sequence before the tokens, brought to where those after them stay.
static float *first_state(const Call *call, const struct GatedDeltaPush *p, uint32_t batch, size_t of_sequence, uint32_t floats) {
    uint32_t mode = call->spec[DELTA_SLOTS];
    size_t size = (size_t)call->spec[HEADS] * call->spec[VALUE_DIM];
    uint32_t owner = mode == SLOTS_NONE ? batch : slot_of(call->buffer[8], batch, p->slots);
    float *before = (float *)call->buffer[5] + owner * size * call->spec[KEY_DIM] + of_sequence, *after = before;
    if (mode != SLOTS_REPLACED)
        after = (float *)call->buffer[7] + p->batch * size * p->tokens + batch * size * call->spec[KEY_DIM] + of_sequence;
    if (mode != SLOTS_NONE && ((const int32_t *)call->buffer[9])[batch] <= 0) __builtin_memset(after, 0, floats * sizeof(float));
    else if (after != before) __builtin_memcpy(after, before, floats * sizeof(float));
    return after;
}

// `count` rows of the state of a head from `row` on, through all tokens.
static void delta_head(const Call *call, const struct GatedDeltaPush *p, uint32_t batch, uint32_t head, uint32_t row, uint32_t count) {
    uint32_t keys = call->spec[KEY_DIM], heads = call->spec[HEADS], values = call->spec[VALUE_DIM];
    uint32_t key = head / (heads / call->spec[KEY_HEADS]) * keys;
    float *out = (float *)call->buffer[7];
    float *state = first_state(call, p, batch, ((size_t)head * values + row) * keys, count * keys);
    float q[MAX_KEYS], k[MAX_KEYS];
    for (uint32_t t = 0; t < p->tokens; t++) {
        size_t token = (size_t)batch * p->tokens + t, at = token * heads + head;
        float *y = out + at * values + row;
        if (call->spec[HAS_MASK] && call->buffer[6][token] == 0) {
            for (uint32_t i = 0; i < count; i++) y[i] = 0;
            continue;
        }
        load_run(q, call->buffer[0], place_of(p->qk_strides, batch, t, key), keys, call->spec[DTYPE_Q]);
        load_run(k, call->buffer[1], place_of(p->qk_strides, batch, t, key), keys, call->spec[DTYPE_K]);
        float q_scale = 1, k_scale = 1;
        if (call->spec[NORMALIZED]) {
            k_scale = 1 / __builtin_sqrtf(dot(k, k, keys) + p->eps);
            q_scale = 1 / __builtin_sqrtf((dot(q, q, keys) + p->eps) * (float)keys);
        }
        float both = dot(k, q, keys) * k_scale * q_scale;
        float decay = load_float(call->buffer[3], at, call->spec[DTYPE_GAMMA]),
              rate = load_float(call->buffer[4], at, call->spec[DTYPE_BETA]);
        if (call->spec[GATED]) {
            float width = m_logaddexp(decay + load_float(call->buffer[10], head, call->spec[DTYPE_GATE_BIAS]), 0);
            decay = m_exp(-m_exp(load_float(call->buffer[11], head, call->spec[DTYPE_LOG_RATE])) * width);
            rate = m_sigmoid(rate);
        }
        size_t value = place_of(p->v_strides, batch, t, head * values + row);
        for (uint32_t i = 0; i < count; i++) {
            float *s = state + (size_t)i * keys;
            float v = load_float(call->buffer[2], value + i, call->spec[DTYPE_V]);
            float update = rate * (v - decay * dot(s, k, keys) * k_scale);
            y[i] = decay * dot(s, q, keys) * q_scale + update * both;
            f4 by = f4_splat(decay), add = f4_splat(update * k_scale);
            for (uint32_t j = 0; j < keys; j += 4) f4_store(s + j, by * f4_load(s + j) + add * f4_load(k + j));
        }
    }
}

uint32_t chunks_gated_delta(const Call *call) {
    PUSH(GatedDeltaPush);
    return chunk_count(delta_rows(call, p), delta_grain(call, p));
}

void k_gated_delta(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(GatedDeltaPush);
    uint32_t grain = delta_grain(call, p), end = chunk_end(last, grain, delta_rows(call, p));
    uint32_t heads = call->spec[HEADS], values = call->spec[VALUE_DIM];
    for (uint32_t at = chunk * grain; at < end;) {
        uint32_t row = at % values, head = at / values;
        uint32_t count = values - row < end - at ? values - row : end - at;
        delta_head(call, p, head / heads, head % heads, row, count);
        at += count;
    }
}

// ---- causal_conv ----------------------------------------------------------------------------------------------------

enum { RUN = 256, MAX_WINDOW = 8 };

// Spec constants.
enum { DTYPE_X = 1, DTYPE_BEFORE, DTYPE_WEIGHT, DTYPE_BIAS, SILU, HAS_BIAS, HAS_COUNTED, CONV_SLOTS };

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
    int32_t given = (int32_t)p->tokens;
    if (call->spec[HAS_COUNTED]) given = ((const int32_t *)call->buffer[4])[call->spec[HAS_COUNTED] == COUNTED_EACH ? batch : 0];
    uint32_t counted = given<0 ? 0 : given>(int32_t) p->tokens ? p->tokens : (uint32_t)given;
    uint8_t *out = call->buffer[5];
    uint32_t mode = call->spec[CONV_SLOTS];
    uint32_t owner = mode == SLOTS_NONE ? batch : slot_of(call->buffer[6], batch, p->slots);
    int begun = mode == SLOTS_NONE || ((const int32_t *)call->buffer[7])[batch] > 0;
    // The inputs that are kept may replace those before: each is read by the time another one takes its place.
    uint8_t *last = mode == SLOTS_REPLACED ? call->buffer[0] : out;
    size_t kept = mode == SLOTS_REPLACED ? (size_t)owner * past : (size_t)p->batch * p->tokens + (size_t)batch * past;
    for (uint32_t at = 0; at < past + p->tokens; at++) {
        float *x = inputs[at % window];
        if (at < past && !begun) {
            __builtin_memset(x, 0, n * sizeof(float));
        } else if (at < past) {
            load_run(x, call->buffer[0], ((size_t)owner * past + at) * p->features + first, n, call->spec[DTYPE_BEFORE]);
            round_run(x, n, dtype);
        } else {
            load_run(x, call->buffer[1], ((size_t)batch * p->tokens + at - past) * p->features + first, n, dtype);
        }
        if (at >= counted && at < counted + past) store_floats(last, (kept + at - counted) * p->features + first, x, n, dtype);
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
