// Products with the normalised residual, x / rms(x) * w: columns of q, k and v with their biases; gate and up, as
// h = activation(g) * u / 16 within the range of float16. A unit is a block or two of 16 columns, gate and up interleaved, and
// a warp keeps its rows for all units of the workgroup.

// Blocks of a unit. A dispatch of q, k and v alone has units of one where those of two would leave many of its 128 workgroups without a last one.
const uint QKV_ALL = (QKV_COLUMNS + 15u) / 16u;
const uint BLOCKS = PHASES != 1u ? 2u : (QKV_ALL + 127u) / 128u < (QKV_ALL + 255u) / 256u * 2u ? 1u : 2u;
const uint QKV_UNITS = (QKV_ALL + BLOCKS - 1u) / BLOCKS;

// A step of each block of a unit that is `ahead` slots behind one, where this workgroup has so many.
void load_ahead(uint64_t codes, uint64_t scales_biases, uint unit, uint units, uint slot, uint ahead, inout Part p) {
    uint at = unit + (slot + ahead) / HIDDEN_SLOTS * gl_NumWorkGroups.x;
    if (at < units) [[unroll]]
        for (uint block = 0; block < BLOCKS; block++)
            p.w[block] = load_step(codes, scales_biases, HIDDEN_STEPS, BLOCKS * at + block, warp() + (slot + ahead) % HIDDEN_SLOTS * WARPS);
}

// What four neighbours finish in a round: a pair of columns of a row.
const uint ROUNDS_OF_PAIRS = (BLOCKS * 64u * 4u + THREADS - 1u) / THREADS;

// Of place and pair `at`, whose words they are.
void finish_qkv(uint unit, uint rows, uint place, uint at, float scale, vec2 bias) {
    uint row = rows * 8u + (at >> 3), column = (BLOCKS * unit + place) * 16u + column_of(at >> 1, (at & 1u) * 2u);
    vec2 sums = sum_by_four(min(place, BLOCKS - 1u), at >> 1, at & 1u) * scale + bias;
    uvec2 words = floatBitsToUint(sums);
    if ((thread() & 3u) == 0u && place < BLOCKS && row < SEQUENCES && column < QKV_COLUMNS)
        Shared2(in_state(AT_FRESH + (row * QKV_COLUMNS + column) * 4u)).v[0] =
            uvec2(tagged(words.x, tag_of_layer()), tagged(words.y, tag_of_layer()));
}

void finish_gate_up(uint unit, uint rows, uint place, uint at, float scale) {
    vec2 gate = sum_by_four(0u, at >> 1, at & 1u) * scale, up = sum_by_four(1u, at >> 1, at & 1u) * scale;
    vec2 h = within_half(vec2(activation(gate.x, ACTIVATION), activation(gate.y, ACTIVATION)) * up * (1.0 / GATE_SCALE));
    if ((thread() & 3u) == 0u && place == 0u && rows * 8u + (at >> 3) < SEQUENCES)
        Shared1(in_state(AT_GATED + word_at(INTERMEDIATE, rows, unit, at >> 1, at & 1u))).v[0] = tagged(half_pair(h), tag_of_layer());
}

// The bias of a pair of columns, which is asked for before the sums are there.
vec2 load_bias(uint unit, uint place, uint at) {
    uint column = (BLOCKS * unit + place) * 16u + column_of(at >> 1, (at & 1u) * 2u);
    return QKV_BIAS == 0u ? vec2(0) : norm_pair(qkv_bias(), min(column, QKV_COLUMNS - 2u) / 2u);
}

bool are_fresh(inout Squares s) {
    bool whole = true;
    [[unroll]] for (uint i = 0; i < SQUARE_SLOTS * ROW_BLOCKS; i++)
        whole = whole && (!has_square(i) || is_fresh(s.s[i]));
    return whole;
}

void await_squares(uint part, inout Squares s) {
    uint spins = 0u;
    while (keep_spinning(are_fresh(s), spins)) read_squares(part, s);
}

// All units of this workgroup from its first one on.
void normed_product(uint from, uint squares_from, uint64_t codes, uint64_t scales_biases, uint first, uint units, bool gated) {
    if (first >= units) return;
    Part now, next, third;
    load_ahead(codes, scales_biases, first, units, 0u, 0u, now);
    load_ahead(codes, scales_biases, first, units, 0u, 1u, next);
    load_ahead(codes, scales_biases, first, units, 0u, 2u, third);
    Rows r;
    Squares s;
    wait_for_rows(from, HIDDEN);
    read_rows(from, HIDDEN, 0u, HIDDEN_SLOTS, r);
    read_squares(squares_from, s);
    await_squares(squares_from, s);
    if (WAITS) barrier(); // others have read what lies there
    share_squares(s);
    await_rows(from, HIDDEN, 0u, HIDDEN_SLOTS, r);
    float scale[ROW_BLOCKS];
    [[dont_unroll]] for (uint unit = first; unit < units; unit += gl_NumWorkGroups.x) {
        SUM sums[BLOCKS];
        [[unroll]] for (uint block = 0; block < BLOCKS; block++)
            sums[block] = no_sum();
        vec2 bias[ROUNDS_OF_PAIRS];
        if (!gated) [[unroll]]
            for (uint i = 0; i < ROUNDS_OF_PAIRS; i++) {
                uint four = thread() / 4u + i * (THREADS / 4u);
                bias[i] = load_bias(unit, four >> 6, four & 63u);
            }
        [[unroll]] for (uint slot = 0; slot < HIDDEN_SLOTS; slot++) {
            [[unroll]] for (uint m = 0; m < 4u; m++) {
                uvec4 rows = rows_of_step(r, slot, m);
                [[unroll]] for (uint block = 0; block < BLOCKS; block++)
                    sums[block] = multiply(rows, weights(now.w[block], m), sums[block]);
            }
            now = next;
            next = third;
            load_ahead(codes, scales_biases, unit, units, slot, 3u, third);
        }
        [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
            [[unroll]] for (uint block = 0; block < BLOCKS; block++)
                share(block, rows, sums[block]);
            barrier();
            if (unit == first) scale[rows] = scale_of(rows * 8u + (thread() >> 5 & 7u));
            [[unroll]] for (uint i = 0; i < ROUNDS_OF_PAIRS; i++) {
                uint four = thread() / 4u + i * (THREADS / 4u), place = four >> 6, at = four & 63u;
                if (!gated) finish_qkv(unit, rows, place, at, scale[rows], bias[i]);
                else if (i == 0u) finish_gate_up(unit, rows, place, at, scale[rows]);
            }
            end_turn();
        }
    }
}
