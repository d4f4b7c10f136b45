// Products with the normalised residual, x / rms(x) * w. They give columns of q, k and v with their biases, or gate and
// up, as h = activation(g) * u / 16 within the range of float16. A unit is a block or two of 16 columns, gate and up
// interleaved. A warp keeps its rows for all units of the workgroup.

// Columns of the joint product of a layer, and where they go. Kernels with layers of two kinds have others of each.
#ifndef JOINT_COLUMNS
#define MOST_COLUMNS QKV_COLUMNS
#define JOINT_COLUMNS QKV_COLUMNS
#define JOINT_AT AT_FRESH
#endif

// Blocks of a unit of q, k and v: one where units of two would leave many of 128 workgroups without a last one.
const uint QKV_ALL = (MOST_COLUMNS + 15u) / 16u;
const uint QKV_BLOCKS = (QKV_ALL + 127u) / 128u < (QKV_ALL + 255u) / 256u * 2u ? 1u : 2u;
uint joint_units() { return ((JOINT_COLUMNS + 15u) / 16u + QKV_BLOCKS - 1u) / QKV_BLOCKS; }

// A step of each block of a unit that is `ahead` slots after one, where this workgroup has so many.
void load_ahead(uint64_t codes, uint64_t scales_biases, uint kind, uint unit, uint units, uint blocks, uint ahead, uint slot,
                inout Parts p) {
    uint at = unit + ahead / HIDDEN_SLOTS * gl_NumWorkGroups.x;
    if (at < units)
        load_part(codes, scales_biases, kind, HIDDEN_STEPS, blocks * at, blocks, warp() + ahead % HIDDEN_SLOTS * WARPS, slot * 2u, p);
}

#ifndef EMULATED
// One block of that, a number of them after the first one of a unit, into a place.
void load_block_ahead(uint64_t codes, uint64_t scales_biases, uint kind, uint unit, uint units, uint blocks, uint ahead, uint place,
                      inout Parts p) {
    uint at = unit + ahead / (HIDDEN_SLOTS * blocks) * gl_NumWorkGroups.x, slot = ahead / blocks % HIDDEN_SLOTS;
    if (at < units) load_part(codes, scales_biases, kind, HIDDEN_STEPS, blocks * at + ahead % blocks, 1u, warp() + slot * WARPS, place, p);
}
#endif

// The result of four neighbours in a round: a pair of columns of a row.
const uint ROUNDS_OF_PAIRS = (QKV_BLOCKS * 64u * 4u + THREADS - 1u) / THREADS;

// Of place and pair `at`, whose words they are.
void finish_qkv(uint unit, uint rows, uint place, uint at, float scale, vec2 bias) {
    uint a_lane = at & 31u, pair = at >> 5, row = rows * 8u + (a_lane >> 2),
         column = (QKV_BLOCKS * unit + place) * 16u + column_of(a_lane, pair * 2u);
    vec2 sums = sum_by_four(min(place, QKV_BLOCKS - 1u), a_lane, pair) * scale + bias;
    uvec2 words = floatBitsToUint(sums);
    if ((thread() & 3u) == 0u && place < QKV_BLOCKS && row < SEQUENCES && column < JOINT_COLUMNS)
        Shared2(in_state(JOINT_AT + (row * JOINT_COLUMNS + column) * 4u)).v[0] =
            uvec2(tagged(words.x, tag_of_layer()), tagged(words.y, tag_of_layer()));
}

void finish_gate_up(uint unit, uint rows, uint place, uint at, float scale) {
    uint a_lane = at & 31u, pair = at >> 5;
    vec2 gate = sum_by_four(0u, a_lane, pair) * scale, up = sum_by_four(1u, a_lane, pair) * scale;
    vec2 h = within_half(vec2(activation(gate.x, ACTIVATION), activation(gate.y, ACTIVATION)) * up * (1.0 / GATE_SCALE));
    if ((thread() & 3u) == 0u && place == 0u && rows * 8u + (a_lane >> 2) < SEQUENCES)
        Shared1(in_state(AT_GATED + word_at(INTERMEDIATE, rows, unit, a_lane, pair))).v[0] = tagged(half_pair(h), tag_of_layer());
}

// The bias of a pair of columns, which is asked for before the sums are there.
vec2 load_bias(uint unit, uint place, uint at) {
    uint column = (QKV_BLOCKS * unit + place) * 16u + column_of(at & 31u, (at >> 5) * 2u);
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
    uint blocks = gated ? 2u : QKV_BLOCKS, kind = gated ? GATED : JOINT;
    Parts p;
#ifndef EMULATED
    if (HALF_UNITS) [[unroll]]
        for (uint place = 0; place < HIDDEN_SLOTS; place++)
            load_block_ahead(codes, scales_biases, kind, first, units, blocks, place, place, p);
#endif
    if (!HALF_UNITS) [[unroll]]
        for (uint slot = 0; slot < NORMED_AHEAD; slot++) load_ahead(codes, scales_biases, kind, first, units, blocks, slot, slot, p);
    Rows r;
    Squares s;
    wait_for_rows(from, HIDDEN);
    [[unroll]] for (uint slot = 0; slot < HIDDEN_SLOTS; slot++)
        read_rows(from, HIDDEN, warp() + slot * WARPS, slot, r);
    read_squares(squares_from, s);
    await_squares(squares_from, s);
    if (WAITS) barrier(); // others have read what lies there
    share_squares(s);
    [[unroll]] for (uint slot = 0; slot < HIDDEN_SLOTS; slot++)
        await_rows(from, HIDDEN, warp() + slot * WARPS, slot, r);
    float scale[ROW_BLOCKS];
    [[dont_unroll]] for (uint unit = first; unit < units; unit += gl_NumWorkGroups.x) {
        Sums sums;
        clear(sums);
        vec2 bias[ROUNDS_OF_PAIRS];
        if (!gated) [[unroll]]
            for (uint i = 0; i < ROUNDS_OF_PAIRS; i++) {
                uint four = thread() / 4u + i * (THREADS / 4u);
                bias[i] = load_bias(unit, four >> 6, four & 63u);
            }
        [[unroll]] for (uint slot = 0; slot < HIDDEN_SLOTS; slot++) {
#ifndef EMULATED
            if (HALF_UNITS) [[unroll]]
                for (uint block = 0; block < blocks; block++) {
                    uint at = slot * blocks + block, place = at % HIDDEN_SLOTS;
                    multiply_part(p, place, r, slot, block, 1u, sums);
                    load_block_ahead(codes, scales_biases, kind, unit, units, blocks, at + HIDDEN_SLOTS, place, p);
                }
#endif
            if (!HALF_UNITS) {
                multiply_part(p, slot % NORMED_AHEAD * 2u, r, slot, 0u, blocks, sums);
                // Of a single step to a unit, that of the next one is there too, and wanted now.
                if (NORMED_AHEAD > HIDDEN_SLOTS) move_part(1u, 0u, blocks, p);
                uint to = NORMED_AHEAD > HIDDEN_SLOTS ? 1u : slot % NORMED_AHEAD;
                load_ahead(codes, scales_biases, kind, unit, units, blocks, slot + NORMED_AHEAD, to, p);
            }
        }
        [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
            [[unroll]] for (uint block = 0; block < blocks; block++)
                share(block, sums.s[block * ROW_BLOCKS + rows]);
            barrier();
            if (unit == first) scale[rows] = scale_of(rows * 8u + (thread() >> 4 & 7u));
            [[unroll]] for (uint i = 0; i < ROUNDS_OF_PAIRS; i++) {
                uint four = thread() / 4u + i * (THREADS / 4u), place = four >> 6, at = four & 63u;
                if (!gated) finish_qkv(unit, rows, place, at, scale[rows], bias[i]);
                else if (i == 0u) finish_gate_up(unit, rows, place, at, scale[rows]);
            }
            end_turn();
        }
    }
}
