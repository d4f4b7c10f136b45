// What a recurrent layer has in the place of attention, of each token of each sequence: a convolution, the gated delta rule and its gate.
//
//   x       silu(sum of w[i] x[i] over the last WINDOW tokens): q, k of each head of keys, and v
//   S       becomes g S + beta (v - g S k) k^T; g = exp(-exp(A) softplus(a + d)), beta = sigmoid(b), k and q have length 1
//   output  S q / the root of KEY_DIM, over a head divided by its root mean square, times w silu(z)
//
// A unit is a head of keys of a sequence, with the heads of values that share it. So one workgroup alone reads and replaces the last inputs of
// its features and its states. The tokens of a sequence follow each other in registers. Four neighbouring threads have a row of S.
//
// With KEEPS nothing is replaced, since only some of the tokens may count. Then x before and after the convolution, b and a are kept for those
// who know how many do. Units are heads of values then, and those that share a head of keys leave the same. net_units.glsl has their sizes.

const uint KEY_FOURS = KEY_DIM / 16u;                                                            // of a row that a thread has
const uint STATE_ROWS = THREADS / 4u, STATE_ROUNDS = (VALUE_DIM + STATE_ROWS - 1u) / STATE_ROWS; // at once
const uint STATE_FOURS = STATE_ROUNDS * KEY_FOURS;                                               // of a head that a thread has

float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }
float as_input(float x) {
    if (DTYPE_X == DTYPE_F32) return x;
    return DTYPE_X == DTYPE_F16 ? f16_value(f16_bits(x)) : bf16_value(bf16_bits(x));
}

// A number of the first product.
float net_value(uint row, uint column) { return uintBitsToFloat(Shared1(in_state(AT_NET + (row * NET_COLUMNS + column) * 4u)).v[0]); }

// Features of a unit in the pool: q, k and v of each token. What the rule gives takes the place of v.
void keep_feature(uint i, float x) { pool[i / 2u][i & 1u] = x; }
float feature_at(uint i) { return pool[i / 2u][i & 1u]; }
vec4 features_at(uint four) { return vec4(pool[2u * four], pool[2u * four + 1u]); }

// Where a feature of a unit is among those of all.
uint mixed_feature(uint first_head, uint i) {
    uint key_head = first_head / SHARING;
    if (i < KEY_DIM) return key_head * KEY_DIM + i;
    if (i < 2u * KEY_DIM) return ALL_KEYS + key_head * KEY_DIM + i - KEY_DIM;
    return 2u * ALL_KEYS + first_head * VALUE_DIM + i - 2u * KEY_DIM;
}

// Places of what is kept of a layer, in elements: x, x after the convolution, b and a, of all rows each.
uint kept_convolved() { return SEQUENCES * MIXED; }
uint kept_rates() { return 2u * SEQUENCES * MIXED; }

void convolve(uint first_head, uint first_row, uint slot, bool begun) {
    const uint rounds = (UNIT_FEATURES + THREADS - 1u) / THREADS;
    [[dont_unroll]] for (uint n = 0; n < rounds; n++) {
        uint at = thread() + n * THREADS, i = min(at, UNIT_FEATURES - 1u); // the last one once more is not stored
        bool owns = at < UNIT_FEATURES;
        uint feature = mixed_feature(first_head, i), past = slot * (WINDOW - 1u) * MIXED + feature;
        float inputs[WINDOW], factors[WINDOW];
        [[unroll]] for (uint n = 0; n + 1u < WINDOW; n++)
            inputs[n] = begun ? load_float(ADDRESS(PAST), past + n * MIXED, DTYPE_X) : 0.0;
        [[unroll]] for (uint n = 0; n < WINDOW; n++)
            factors[n] = load_float(ADDRESS(CONV), feature * WINDOW + n, DTYPE_W);
        [[dont_unroll]] for (uint token = 0; token < TOKENS; token++) {
            uint row = first_row + token;
            inputs[WINDOW - 1u] = as_input(net_value(row, feature));
            float sum = 0.0;
            [[unroll]] for (uint n = WINDOW; n > 0u; n--)
                sum = fma(inputs[n - 1u], factors[n - 1u], sum);
            float x = sum * sigmoid(sum);
            if (owns) keep_feature(token * UNIT_FEATURES + i, x);
            if (KEEPS != 0u && owns) {
                store_float(ADDRESS(KEPT), row * MIXED + feature, DTYPE_X, inputs[WINDOW - 1u]);
                store_float(ADDRESS(KEPT), kept_convolved() + row * MIXED + feature, DTYPE_X, x);
            }
            [[unroll]] for (uint n = 1u; n < WINDOW; n++)
                inputs[n - 1u] = inputs[n];
        }
        if (KEEPS == 0u && owns) [[unroll]]
            for (uint n = 0; n + 1u < WINDOW; n++) store_float(ADDRESS(PAST), past + n * MIXED, DTYPE_X, inputs[n]);
    }
}

// The row of a head's state that this thread has a part of in a round.
uint state_row(uint round) { return min(round * STATE_ROWS + thread() / 4u, VALUE_DIM - 1u); }
uint64_t state_of(uint slot, uint head) { return ADDRESS(MATRIX) + uint64_t((slot * VALUE_HEADS + head) * VALUE_DIM) * (KEY_DIM * 4u); }
uint state_place(uint round, uint i) { return state_row(round) * (KEY_DIM / 4u) + i * 4u + lane_column(); }

// The rule for a head of values, whose first feature among those of the unit is at `first`.
void apply_rule(uint head, uint first, uint first_row, uint64_t matrix, inout vec4 s[STATE_FOURS]) {
    float bias = load_float(ADDRESS(DT_BIAS), head, DTYPES_RATE >> 8), pace = exp(load_float(ADDRESS(LOG_RATE), head, DTYPES_RATE & 255u));
    float eps = uintBitsToFloat(UNIT_EPS);
    [[dont_unroll]] for (uint token = 0; token < TOKENS; token++) {
        uint row = first_row + token, base = token * UNIT_FEATURES;
        float b = net_value(row, MIXED + ALL_VALUES + head), a = net_value(row, MIXED + ALL_VALUES + VALUE_HEADS + head);
        if (KEEPS != 0u && thread() == 0u) {
            store_float(ADDRESS(KEPT), kept_rates() + row * VALUE_HEADS + head, DTYPE_X, b);
            store_float(ADDRESS(KEPT), kept_rates() + (SEQUENCES + row) * VALUE_HEADS + head, DTYPE_X, a);
        }
        float width = as_input(a) + bias, rate = sigmoid(as_input(b));
        float decay = exp(-pace * (max(width, 0.0) + log(1.0 + exp(-abs(width)))));
        vec3 lengths = vec3(0); // k k, q q, k q
        [[unroll]] for (uint i = 0; i < KEY_FOURS; i++) {
            vec4 q = features_at(base / 4u + i * 4u + lane_column()), k = features_at((base + KEY_DIM) / 4u + i * 4u + lane_column());
            lengths += vec3(dot(k, k), dot(q, q), dot(k, q));
        }
        lengths = vec3(four_sum(lengths.x), four_sum(lengths.y), four_sum(lengths.z));
        float k_scale = inversesqrt(lengths.x + eps), q_scale = inversesqrt((lengths.y + eps) * float(KEY_DIM));
        [[unroll]] for (uint round = 0; round < STATE_ROUNDS; round++) {
            vec2 sums = vec2(0); // S k, S q
            [[unroll]] for (uint i = 0; i < KEY_FOURS; i++) {
                vec4 q = features_at(base / 4u + i * 4u + lane_column()), k = features_at((base + KEY_DIM) / 4u + i * 4u + lane_column());
                sums += vec2(dot(s[round * KEY_FOURS + i], k), dot(s[round * KEY_FOURS + i], q));
            }
            sums = vec2(four_sum(sums.x), four_sum(sums.y));
            uint at = base + first + state_row(round);
            float change = rate * fma(-decay * k_scale, sums.x, feature_at(at));
            float y = fma(change * k_scale, lengths.z, decay * sums.y) * q_scale;
            change *= k_scale;
            [[unroll]] for (uint i = 0; i < KEY_FOURS; i++) {
                vec4 k = features_at((base + KEY_DIM) / 4u + i * 4u + lane_column());
                s[round * KEY_FOURS + i] = fma(vec4(change), k, decay * s[round * KEY_FOURS + i]);
            }
            subgroupBarrier(); // all four have read v
            if (lane_column() == 0u && round * STATE_ROWS + thread() / 4u < VALUE_DIM) keep_feature(at, y);
        }
    }
    if (KEEPS != 0u) return;
    [[unroll]] for (uint round = 0; round < STATE_ROUNDS; round++) {
        if (round * STATE_ROWS + thread() / 4u >= VALUE_DIM) continue;
        [[unroll]] for (uint i = 0; i < KEY_FOURS; i++)
            F32x4s(matrix).v[state_place(round, i)] = s[round * KEY_FOURS + i];
    }
}

void load_state(uint64_t matrix, bool begun, out vec4 s[STATE_FOURS]) {
    [[unroll]] for (uint round = 0; round < STATE_ROUNDS; round++) [[unroll]]
        for (uint i = 0; i < KEY_FOURS; i++) s[round * KEY_FOURS + i] = begun ? F32x4s(matrix).v[state_place(round, i)] : vec4(0);
}

// What the output projection multiplies: pairs of values of a unit, normalised over their heads, and gated.
void leave_outputs(uint first_head, uint first_row) {
    const uint PAIRS_OF_UNIT = UNIT_VALUES / 2u, FOURS_OF_HEAD = VALUE_DIM / 4u;
    const uint all = TOKENS * PAIRS_OF_UNIT, rounds = (all + THREADS - 1u) / THREADS;
    [[dont_unroll]] for (uint n = 0; n < rounds; n++) {
        uint i = min(thread() + n * THREADS, all - 1u);
        uint token = i / PAIRS_OF_UNIT, value = i % PAIRS_OF_UNIT * 2u, row = first_row + token, column = first_head * VALUE_DIM + value;
        uint head = (token * UNIT_FEATURES + 2u * KEY_DIM + value / VALUE_DIM * VALUE_DIM) / 4u;
        vec2 z = vec2(net_value(row, MIXED + column), net_value(row, MIXED + column + 1u));
        float squares = 0.0;
        [[dont_unroll]] for (uint j = 0; j < FOURS_OF_HEAD; j++) {
            vec4 y = features_at(head + j);
            squares += dot(y, y);
        }
        float scale = inversesqrt(fma(squares, 1.0 / float(VALUE_DIM), pc.p.net_eps));
        vec2 y = pool[2u * head + value % VALUE_DIM / 2u] * scale * norm_pair(output_norm(), value % VALUE_DIM / 2u);
        y *= z / (1.0 + exp(-z));
        uint a_lane = row % 8u * 4u + column % 8u / 2u;
        Shared1(in_state(AT_ATTENTION + word_at(Q_COLUMNS, row / 8u, column / 16u, a_lane, column / 8u % 2u))).v[0] =
            tagged(half_pair(within_half(y)), tag_of_layer());
    }
}

void update(uint unit) {
    uint sequence = unit / UNITS_OF_SEQUENCE, first_head = unit % UNITS_OF_SEQUENCE * OWN_HEADS, first_row = sequence * TOKENS;
    uint slot = pc.address[SLOTS] == 0ul ? sequence : U32s(pc.address[SLOTS]).v[sequence];
    // Before the first token of a sequence another one's state is there.
    bool begun = pc.address[SLOT_POSITIONS] == 0ul || I32s(pc.address[SLOT_POSITIONS]).v[sequence] > 0;
    vec4 s[STATE_FOURS];
    load_state(state_of(slot, first_head), begun, s);
    convolve(first_head, first_row, slot, begun);
    barrier();
    [[dont_unroll]] for (uint n = 0; n < OWN_HEADS; n++) {
        uint head = first_head + n;
        if (n > 0u) load_state(state_of(slot, head), begun, s);
        apply_rule(head, 2u * KEY_DIM + n * VALUE_DIM, first_row, state_of(slot, head), s);
    }
    barrier();
    leave_outputs(first_head, first_row);
}
