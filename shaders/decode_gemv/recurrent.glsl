// What a recurrent layer has in the place of attention. The matrix S of a head and the last inputs of the convolution stay from token to
// token. They are replaced in place: the thread that reads a number of them writes it.
//
//   x       silu(sum of w[i] x[i] over the last WINDOW tokens): what has a row of x has its inputs
//   S       becomes g S + beta (v - g S k) k^T; g = exp(-exp(A) softplus(a + d)), beta = sigmoid(b), k and q have length 1
//   output  S q / the root of KEY_DIM, times w silu(z), and its squares before that; divided by its root mean square over a head
//
// Workgroups have b and a beside their rows of x and z (rates.glsl). 16 lanes have a row of S, and a workgroup 32 of a head.

#include "rates.glsl"

float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }

// Where many sequences have states, in which slot this one has its own; before its first token another one's is there.
uint slot;
bool has_begun;
void find_state() {
    slot = pc.address[STATE_SLOT] == 0ul ? 0u : U32s(pc.address[STATE_SLOT]).v[0];
    has_begun = pc.address[POSITION] == 0ul || I32s(pc.address[POSITION]).v[0] > 0;
}

// ---- the first phase: x, z, b and a ------------------------------------------------------------------------------------------

float conv_inputs[WINDOW - 1u], conv_factors[WINDOW];

// The row of x that a thread has, or the last one.
uint mixed_row() { return min(workgroup() * QKV_ROWS + min(thread(), QKV_ROWS - 1u), MIXED - 1u); }
uint past_place(uint i) { return (slot * (WINDOW - 1u) + i) * MIXED; }

// Asks for what the products of the first phase do not need.
void ask_net() {
    [[unroll]] for (uint i = 0; i + 1u < WINDOW; i++)
        conv_inputs[i] = has_begun ? load_float(ADDRESS(PAST), past_place(i) + mixed_row(), DTYPE_X) : 0.0;
    [[unroll]] for (uint i = 0; i < WINDOW; i++)
        conv_factors[i] = load_float(ADDRESS(CONV), mixed_row() * WINDOW + i, DTYPE_W);
    ask_rates();
}

// Codes of other bits take what they multiply in another order. So b and a have it for themselves then, before the others.
const bool RATES_ALIKE = RATES_BITS == CODE_BITS(QKV_FORMAT);
void rates_alone() {
    norm_to_vector(AT_RESIDUAL, tag_before(LAYER), ADDRESS(NORMS), RATES_FORMAT);
    multiply_rates();
    barrier();
}

// Leaves x, z, b and a, `scale` times the sums.
void project(float scale) {
    const uint past = WINDOW - 1u;
    uint row = workgroup() * QKV_ROWS + thread();
    if (thread() < QKV_ROWS) {
        float x = qkv_sum(thread()) * scale;
        note_lost(x);
        if (row < MIXED) {
            x = rounded_as(x, DTYPE_X);
            float sum = x * conv_factors[past];
            [[unroll]] for (uint i = past; i > 0u; i--)
                sum = fma(conv_inputs[i - 1u], conv_factors[i - 1u], sum);
            [[unroll]] for (uint i = 0; i < past; i++)
                store_float(ADDRESS(PAST), past_place(i) + row, DTYPE_X, i + 1u < past ? conv_inputs[min(i + 1u, past - 1u)] : x);
            x = sum * sigmoid(sum);
        }
        word_store(AT_X + row * 4u, x, OWN_TAG);
    }
    uint rate = THREADS - 1u - thread(); // other threads than those
    if (rate < RATES_ROWS && workgroup() * RATES_ROWS + rate < 2u * VALUE_HEADS)
        word_store(AT_RATES + (workgroup() * RATES_ROWS + rate) * 4u, rates_sum(rate) * scale, OWN_TAG);
}

// ---- the second phase: S -----------------------------------------------------------------------------------------------------

// Quads of q, k, v, z, b and a of a workgroup in shared memory, and after them the squares of its warps.
const uint KEY_QUADS = KEY_DIM / 4u, ROW_QUADS = HEAD_ROWS / 4u;
const uint K_QUAD = KEY_QUADS, V_QUAD = 2u * KEY_QUADS, Z_QUAD = V_QUAD + ROW_QUADS, B_QUAD = Z_QUAD + ROW_QUADS, A_QUAD = B_QUAD + 1u,
           NET_QUADS = A_QUAD + 1u;

// Where quad `i` is in the state, of rows from `row` on of all heads.
uint net_quad(uint i, uint row) {
    uint head = row / VALUE_DIM, key = head / (VALUE_HEADS / KEY_HEADS) * KEY_DIM;
    if (i < K_QUAD) return AT_X + 4u * key + 16u * i;
    if (i < V_QUAD) return AT_X + 4u * (ALL_KEYS + key) + 16u * (i - K_QUAD);
    if (i < Z_QUAD) return AT_X + 4u * (2u * ALL_KEYS + row) + 16u * (i - V_QUAD);
    if (i < B_QUAD) return AT_Z + 4u * row + 16u * (i - Z_QUAD);
    return AT_RATES + 4u * ((i - B_QUAD) * VALUE_HEADS + head / 4u * 4u);
}

const uint UNITS = VALUE_HEADS * HEAD_GROUPS;

// Rows `unit` * HEAD_ROWS and on of the heads, a team each. After the last unit that one is computed once more, and not stored. So all
// threads exchange values, whatever compilers know of workgroups.
void update(uint unit) {
    bool stores = unit < UNITS;
    unit = min(unit, UNITS - 1u);
    const uint QUADS = KEY_DIM / 64u; // of a row that a lane has
    uint first = unit * HEAD_ROWS, value = first + team(), head = first / VALUE_DIM;
    uint64_t at = ADDRESS(MATRIX) + uint64_t((slot * ALL_VALUES + value) * KEY_DIM) * 4u;
    vec4 s[QUADS], q[QUADS], k[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; i++)
        s[i] = has_begun ? F32x4s(at).v[i * 16u + thread_lane()] : vec4(0.0);
    float weight = load_float(ADDRESS(NORMS) + AT_OUTPUT_NORM, value % VALUE_DIM, DTYPE_W);
    float bias = load_float(ADDRESS(DT_BIAS), head, DTYPES_RATE >> 8), log_rate = load_float(ADDRESS(LOG_RATE), head, DTYPES_RATE & 255u);
    if (thread() < NET_QUADS) vector[thread()] = floatBitsToUint(word_value(wait_quad(net_quad(thread(), first), OWN_TAG)));
    IF_POLLING(subgroupBarrier();) // lanes that waited, each for its own, meet again
    barrier();
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        q[i] = uintBitsToFloat(vector[i * 16u + thread_lane()]);
        k[i] = uintBitsToFloat(vector[K_QUAD + i * 16u + thread_lane()]);
    }
    float v = scratch_get(4u * V_QUAD + team()), z = scratch_get(4u * Z_QUAD + team());
    float rate = sigmoid(scratch_get(4u * B_QUAD + head % 4u)), width = scratch_get(4u * A_QUAD + head % 4u) + bias;
    width = max(width, 0.0) + log(1.0 + exp(-abs(width)));
    float decay = exp(-exp(log_rate) * width);
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
        if (stores) F32x4s(at).v[i * 16u + thread_lane()] = fma(vec4(change), k[i], decay * s[i]);
    float squares = y * y;
    squares += lane_xor(squares, 16u); // of two rows
    if (lane() == 0u) scratch_put(4u * NET_QUADS + warp(), squares);
    if (stores && thread_lane() == 0u) word_store(AT_OUTPUTS + value * 4u, y * weight * (z * sigmoid(z)), OWN_TAG);
    barrier();
    if (thread() > 0u || !stores) return;
    float all = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        all += scratch_get(4u * NET_QUADS + i);
    note_lost(all);
    word_store(AT_SQUARES + unit * 4u, all, OWN_TAG);
}

// ---- the output projection ---------------------------------------------------------------------------------------------------

// Eight neighbouring outputs, normalised and gated, once they are there.
void output_eight(uint eight, out vec4 x, out vec4 y) {
    uint64_t words = state() + (AT_OUTPUTS + 32u * eight), squares_at = state() + (AT_SQUARES + 8u * eight / VALUE_DIM * HEAD_GROUPS * 4u);
    uvec4 a, b;
    uint parts[HEAD_GROUPS];
    POLL_ALL({
        a = Shared4(words).v[0];
        b = Shared4(words).v[1];
        uint others = words_missing(a, OWN_TAG) | words_missing(b, OWN_TAG);
        [[unroll]] for (uint i = 0; i < HEAD_GROUPS; i++) {
            parts[i] = Shared1(squares_at).v[i];
            others |= (parts[i] ^ OWN_TAG) & 3u;
        }
        missing = others != 0u;
    })
    IF_POLLING(subgroupBarrier();)
    float squares = 0.0;
    [[unroll]] for (uint i = 0; i < HEAD_GROUPS; i++)
        squares += word_value(parts[i]);
    float scale = inversesqrt(fma(squares, 1.0 / float(VALUE_DIM), pc.p.net_eps));
    x = word_value(a) * scale;
    y = word_value(b) * scale;
}

// What the output projection multiplies, in shared memory. Both kinds of layers share what follows.
void first_vector() {
    const uint eights = ALL_Q / 8u, rounds = (eights + THREADS - 1u) / THREADS;
    [[dont_unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = min(thread() + n * THREADS, eights - 1u);
        vec4 x, y;
        if (IS_NET) output_eight(eight, x, y);
        else attended_eight(eight, x, y);
        quantize(eight, thread() + n * THREADS < eights, x, y, O_FORMAT);
    }
    barrier();
}
