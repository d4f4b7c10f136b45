#version 460
// A phase of a layer that has a gated delta net in the place of attention, after a barrier. The matrix S of a head and the last inputs of
// the convolution stay from token to token, and are replaced in place. Phases, by the bits of those of a layer with attention:
//
//   qkv        norm, rows of four products: queries, keys and values x, the gate z, and of each head b and a.
//              x becomes silu(sum of w[i] x[i] over the last WINDOW tokens): what has a row of x has its inputs
//   attention  (head, rows of S): S becomes g S + beta (v - g S k) k^T and gives S q times w silu(z), and squares of S q.
//              g = exp(-exp(A) softplus(a + d)), beta = sigmoid(b); k and q have length 1, q is divided by the root of KEY_DIM
//   o          S q / its root mean square over a head, rows of the output projection, added to the residual
//
// The feed-forward part is that of phase.comp. GRID workgroups have x and z. RATE_GROUPS more have b and a, which are few rows, since a
// device may have multiprocessors without work then. In the second phase 16 lanes have a row of S.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 13
#define PUSH DecodeRecurrentPush
#define RECURRENT

const uint STATE = 0u, NORMS = 1u, PROJECTED = 10u, STATE_SLOT = 11u, POSITION = 12u;
const uint Q = 2u, K = 3u, V = 3u, QKV_SCALES_BIASES = 4u, RATE = 5u, STEP = 6u, RATES_SCALES_BIASES = 7u, CONV = 8u, PAST = 9u;
const uint DT_BIAS = 2u, LOG_RATE = 3u, MATRIX = 9u;
const uint O = 2u, O_SCALES_BIASES = 4u;
// Of products that it does not have.
const uint GATE = 2u, UP = 3u, DOWN = 2u, ROUTER = 2u, GATE_UP_SCALES_BIASES = 4u, DOWN_SCALES_BIASES = 4u, ROUTER_SCALES_BIASES = 4u;
const uint EXPERTS = 0u, DOWN_PARTS = 1u;
const uint SHARED = 0u, SHARED_ROUTER = 0u, SHARED_GATE = 0u, SHARED_UP = 0u, SHARED_DOWN = 0u;

layout(constant_id = 30) const uint VALUE_HEADS = 32u;
layout(constant_id = 31) const uint KEY_HEADS = 16u; // a divisor of them
layout(constant_id = 32) const uint KEY_DIM = 128u;
layout(constant_id = 33) const uint VALUE_DIM = 128u;
layout(constant_id = 34) const uint WINDOW = 4u; // of the convolution
layout(constant_id = 35) const uint RATES_FORMAT = 0x19u;
layout(constant_id = 36) const uint RATES_RUN = 1u;
layout(constant_id = 37) const uint DTYPE_X = 0u;     // of the convolution's inputs
layout(constant_id = 38) const uint DTYPES_RATE = 0u; // of A and d, a byte each
layout(constant_id = 39) const uint UNIT_EPS = 0u;    // float bits: added to the squares of the lengths of q and k

const uint KEYS = KEY_HEADS * KEY_DIM, ALL_VALUES = VALUE_HEADS * VALUE_DIM, MIXED = 2u * KEYS + ALL_VALUES;
const uint Q_ROWS = MIXED, K_ROWS = ALL_VALUES, V_ROWS = 0u;
const uint RATE_GROUPS = 4u, RATES_ROWS = 2u * VALUE_HEADS / RATE_GROUPS; // of each of these workgroups
#define MORE_SUMS SUMS_OF_TEAM(HIDDEN, RATES_ROWS, RATES_RUN)
#include "gemv.glsl"
#include "residual.glsl"

#define PRODUCT rates
#define PRODUCT_FORMAT RATES_FORMAT
#define DEPTH HIDDEN
#define ROWS RATES_ROWS
#define RUN RATES_RUN
void rates_place(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    scales_at = (workgroup() - GRID) * ROWS + row;
    bool is_rate = scales_at < VALUE_HEADS;
    codes = is_rate ? ADDRESS(RATE) : ADDRESS(STEP);
    at = scales_at - (is_rate ? 0u : VALUE_HEADS);
}
uint rates_matrix(uint run) { return (workgroup() - GRID) * ROWS < VALUE_HEADS ? 0u : 1u; }
uint rates_first(uint run) { return 0u; }
uint64_t rates_scales_biases() { return ADDRESS(RATES_SCALES_BIASES); }
#include "product.glsl"

// What the phases exchange, float32: x after the convolution, z, b and a of each head, and the squares of parts of S q.
const uint AT_Z = MIXED, AT_RATES = AT_Z + ALL_VALUES, AT_SQUARES = AT_RATES + 2u * VALUE_HEADS;
const uint HEAD_ROWS = THREADS / 16u, HEAD_GROUPS = VALUE_DIM / HEAD_ROWS; // of S of a workgroup, and workgroups of a head

float projected(uint i) { return F32s(ADDRESS(PROJECTED)).v[i]; }
float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }

// Where many sequences have states, in which slot this one has its own; before its first token another one's is there.
uint slot() { return ADDRESS(STATE_SLOT) == 0ul ? 0u : U32s(ADDRESS(STATE_SLOT)).v[0]; }
bool has_begun() { return ADDRESS(POSITION) == 0ul || I32s(ADDRESS(POSITION)).v[0] > 0; }

void project() {
    const uint past = WINDOW - 1u;
    uint row = workgroup() * QKV_ROWS + min(thread(), QKV_ROWS - 1u), mixed = min(row, MIXED - 1u);
    uint own = slot() * past * MIXED;
    bool begun = has_begun();
    float inputs[past], factors[WINDOW];
    [[unroll]] for (uint i = 0; i < past; i++)
        inputs[i] = begun ? load_float(ADDRESS(PAST), own + i * MIXED + mixed, DTYPE_X) : 0.0;
    [[unroll]] for (uint i = 0; i < WINDOW; i++)
        factors[i] = load_float(ADDRESS(CONV), mixed * WINDOW + i, DTYPE_W);
    qkv_ahead();
    norm_to_vector(AT_RESIDUAL, tag_before(LAYER), ADDRESS(NORMS), QKV_FORMAT);
    qkv_multiply();
    float scale = norm_scale();
    if (thread() >= QKV_ROWS) return;
    float x = qkv_sum(thread()) * scale;
    note_lost(x);
    if (row < MIXED) {
        x = rounded_as(x, DTYPE_X);
        float sum = x * factors[past];
        [[unroll]] for (uint i = past; i > 0u; i--)
            sum = fma(inputs[i - 1u], factors[i - 1u], sum);
        [[unroll]] for (uint i = 0; i < past; i++)
            store_float(ADDRESS(PAST), own + i * MIXED + row, DTYPE_X, i + 1u < past ? inputs[min(i + 1u, past - 1u)] : x);
        x = sum * sigmoid(sum);
    }
    F32s(ADDRESS(PROJECTED)).v[row] = x;
}

void project_rates() {
    rates_ahead();
    norm_to_vector(AT_RESIDUAL, tag_before(LAYER), ADDRESS(NORMS), RATES_FORMAT);
    rates_multiply();
    float scale = norm_scale();
    if (thread() < RATES_ROWS)
        F32s(ADDRESS(PROJECTED)).v[AT_RATES + (workgroup() - GRID) * RATES_ROWS + thread()] = rates_sum(thread()) * scale;
}

void update() {
    const uint QUADS = KEY_DIM / 64u; // of a row that a lane has
    uint head = workgroup() / HEAD_GROUPS, row = workgroup() % HEAD_GROUPS * HEAD_ROWS + team();
    uint key_head = head / (VALUE_HEADS / KEY_HEADS), value = head * VALUE_DIM + row;
    uint64_t at = ADDRESS(MATRIX) + uint64_t((slot() * ALL_VALUES + value) * KEY_DIM) * 4u;
    bool begun = has_begun();
    vec4 s[QUADS], q[QUADS], k[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        s[i] = begun ? F32x4s(at).v[i * 16u + thread_lane()] : vec4(0.0);
        q[i] = F32x4s(ADDRESS(PROJECTED)).v[key_head * (KEY_DIM / 4u) + i * 16u + thread_lane()];
        k[i] = F32x4s(ADDRESS(PROJECTED)).v[(KEY_HEADS + key_head) * (KEY_DIM / 4u) + i * 16u + thread_lane()];
    }
    float v = projected(2u * KEYS + value), z = projected(AT_Z + value), weight = load_float(ADDRESS(NORMS), row, DTYPE_W);
    float rate = sigmoid(projected(AT_RATES + head));
    float width = projected(AT_RATES + VALUE_HEADS + head) + load_float(ADDRESS(DT_BIAS), head, DTYPES_RATE >> 8);
    width = max(width, 0.0) + log(1.0 + exp(-abs(width)));
    float decay = exp(-exp(load_float(ADDRESS(LOG_RATE), head, DTYPES_RATE & 255u)) * width);
    float sums[5] = {0.0, 0.0, 0.0, 0.0, 0.0}; // S k, S q, k k, q q, k q
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        sums[0] = dot_on(s[i], k[i], sums[0]);
        sums[1] = dot_on(s[i], q[i], sums[1]);
        sums[2] = dot_on(k[i], k[i], sums[2]);
        sums[3] = dot_on(q[i], q[i], sums[3]);
        sums[4] = dot_on(k[i], q[i], sums[4]);
    }
    [[unroll]] for (uint m = 1u; m < 16u; m <<= 1) [[unroll]]
        for (uint i = 0; i < 5u; i++) sums[i] += lane_xor(sums[i], m);
    float eps = uintBitsToFloat(UNIT_EPS);
    float k_scale = inversesqrt(sums[2] + eps), q_scale = inversesqrt((sums[3] + eps) * float(KEY_DIM));
    float change = rate * fma(-decay * k_scale, sums[0], v);
    float y = fma(change * k_scale, sums[4], decay * sums[1]) * q_scale;
    change *= k_scale;
    [[unroll]] for (uint i = 0; i < QUADS; i++)
        F32x4s(at).v[i * 16u + thread_lane()] = fma(vec4(change), k[i], decay * s[i]);
    float squares = y * y;
    squares += lane_xor(squares, 16u); // of two rows
    if (lane() == 0u) scratch_put(warp(), squares);
    barrier();
    if (thread_lane() == 0u) word_store(AT_ATTENDED + value * 4u, y * weight * (z * sigmoid(z)), tag_of(LAYER));
    if (thread() > 0u) return;
    float all = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        all += scratch_get(i);
    note_lost(all);
    F32s(ADDRESS(PROJECTED)).v[AT_SQUARES + workgroup()] = all;
}

// S q, normalised and gated, in shared memory.
void outputs_to_vector() {
    const uint eights = ALL_Q / 8u, rounds = (eights + THREADS - 1u) / THREADS;
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = min(thread() + n * THREADS, eights - 1u);
        uint64_t words = state() + (AT_ATTENDED + 32u * eight);
        vec4 a = word_value(Shared4(words).v[0]), b = word_value(Shared4(words).v[1]);
        float squares = 0.0;
        [[unroll]] for (uint i = 0; i < HEAD_GROUPS; i++)
            squares += projected(AT_SQUARES + 8u * eight / VALUE_DIM * HEAD_GROUPS + i);
        float scale = inversesqrt(fma(squares, 1.0 / float(VALUE_DIM), pc.p.head_eps));
        quantize(eight, thread() + n * THREADS < eights, a * scale, b * scale, O_FORMAT);
    }
    barrier();
}

void output_rows() {
    o_ahead();
    take_carried(AT_RESIDUAL);
    outputs_to_vector();
    o_multiply();
    add_to_residual(AT_AFTER, owns() ? o_sum(thread()) : 0.0);
}

void main() {
    if (PHASES == PHASE_QKV && workgroup() < GRID) project();
    if (PHASES == PHASE_QKV && workgroup() >= GRID) project_rates();
    if (PHASES == PHASE_ATTENTION) update();
    if (PHASES == PHASE_O) output_rows();
    tell_lost();
}
