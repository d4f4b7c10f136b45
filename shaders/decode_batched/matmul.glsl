// Products of a phase. The warps of a workgroup share the depth of a unit of columns, in steps of 64, and meet in
// shared memory.

const uint HIDDEN_STEPS = HIDDEN / 64u, HIDDEN_SLOTS = (HIDDEN_STEPS + WARPS - 1u) / WARPS;
const bool WIDE = HIDDEN_SLOTS > 2u; // so that there is one block of 8 rows at most
// Blocks of a unit of a projection. Two share one reading of the values, unless they leave many of 128 workgroups without a last one.
const uint HIDDEN_ALL = HIDDEN / 16u, ROUNDS_OF_TWO = (HIDDEN_ALL + 255u) / 256u * 2u;
const uint BALANCED_BLOCKS = (HIDDEN_ALL + 127u) / 128u < ROUNDS_OF_TWO ? 1u : 2u;
const uint WIDE_BLOCKS = HIDDEN_ALL > 256u ? BALANCED_BLOCKS : 2u;
const uint UNIT_BLOCKS = WIDE ? WIDE_BLOCKS : 1u;

// ---- words that workgroups exchange -----------------------------------------------------------------------------------------

// A word's lowest bit changes from layer to layer: its readers have seen the one before.
uint tag_of_layer() { return ~layer & 1u; }
uint tag_of_next_layer() { return layer & 1u; }
bool is_fresh(uvec4 w) {
    return (((w.x ^ tag_of_layer()) | (w.y ^ tag_of_layer()) | (w.z ^ tag_of_layer()) | (w.w ^ tag_of_layer())) & 1u) == 0u;
}

// Counts a poll that came too early. Beyond the spin limit something is wrong: the status says so, and all workgroups leave.
bool give_up(inout uint spins) {
    if (++spins >= pc.p.spin_limit) Shared1(pc.address[STATUS]).v[0] = 1u;
    else if ((spins & 63u) != 0u) return false;
    return Shared1(pc.address[STATUS]).v[0] != 0u;
}

// Whether the loaded words have to be read again.
bool keep_spinning(bool whole, inout uint spins) { return WAITS && !ALL_LANES(whole) && !ANY_LANE(give_up(spins)); }

// ---- loads on their way ----------------------------------------------------------------------------------------------------

// Steps that a warp has in flight. A projection has three, or all where four are all, and five with half units. A product after a norm has those
// of a unit, or two. Loops advance by that many steps, and each step has a place of its own. To move what has not
// arrived would be to wait for it. Of 8 and 16 bits, which take more registers, there are fewer.
const uint FEWER_AHEAD = BITS == 8u ? 2u : WIDE ? 1u : 2u;
// Of more than four steps a warp, the weights of a unit and their rows do not fit into registers together. Then the places are those of
// blocks, and half of a unit is on its way. Emulated kernels have registers of memory, and keep whole units.
#ifndef EMULATED
const bool HALF_UNITS = BITS == 4u && HIDDEN_SLOTS > 4u;
#else
const bool HALF_UNITS = false;
#endif
uint project_ahead(uint steps) {
    if (BITS != 4u) return FEWER_AHEAD;
    return HALF_UNITS && UNIT_BLOCKS == 1u ? 5u : ROW_BLOCKS == 1u && steps <= 4u * WARPS ? 4u : 3u;
}
const uint UNIT_AHEAD = HIDDEN_SLOTS > 2u ? HIDDEN_SLOTS : 2u;
const uint NORMED_AHEAD = BITS == 4u ? UNIT_AHEAD : BITS == 16u ? 1u : HIDDEN_SLOTS % 2u == 0u ? 2u : UNIT_AHEAD;
const uint AHEAD = UNIT_AHEAD > 4u ? UNIT_AHEAD : 4u; // at most

// Of weights, up to two blocks of 16 columns of each step. Arrays of structs would end up in memory.
struct Parts {
    uvec4 codes[AHEAD * 2u * CODE_LOADS];
    uvec2 scales_biases[AHEAD * 2u * STEP_GROUPS];
};
// Of values, 8 rows in the order of a product's.
struct Rows {
    uvec4 a[AHEAD * ROW_BLOCKS * 2u];
};
// Of blocks, with 8 rows each.
struct Sums {
    BLOCK_SUM s[2u * ROW_BLOCKS];
};

void clear(inout Sums sums) {
    [[unroll]] for (uint i = 0; i < 2u * ROW_BLOCKS; i++)
        sums.s[i] = no_block_sum();
}

// How the blocks of a product lie in dense matrices: in one, in two by turns, or in q, then k, then v.
const uint ALONE = 0u, GATED = 1u, JOINT = 2u;

// The 16 rows of a block of dense weights. `second` is the place of scales and biases otherwise.
uint64_t dense_rows(uint64_t first, uint64_t second, uint steps, uint block, uint kind) {
    uint row = kind == GATED ? block / 2u * 16u : block * 16u;
    uint64_t matrix = kind == GATED && block % 2u != 0u ? second : first;
    if (kind == JOINT) {
        row = min(row, QKV_COLUMNS - 16u);
        uint behind_q = row - Q_COLUMNS, keys = KV_HEADS * HEAD_DIM;
        if (row >= Q_COLUMNS) {
            matrix = behind_q < keys ? second : ADDRESS(V);
            row = behind_q < keys ? behind_q : behind_q - keys;
        }
    }
    return matrix + uint64_t(row * steps) * 128ul;
}

// A step of `blocks` blocks into places from `place` on.
void load_part(uint64_t codes, uint64_t scales_biases, uint kind, uint steps, uint first_block, uint blocks, uint step, uint place,
               inout Parts p) {
    if (steps % WARPS != 0u) step = min(step, steps - 1u); // else every warp has as many
    [[unroll]] for (uint block = 0; block < blocks; block++) {
        uint at = place + block;
        if (BITS == 16u) {
            uint64_t rows = dense_rows(codes, scales_biases, steps, first_block + block, kind);
            [[unroll]] for (uint load = 0; load < CODE_LOADS; load++)
                p.codes[at * CODE_LOADS + load] = load_dense(rows, steps, step, lane_row() + load / 2u * 8u, load);
        } else {
            [[unroll]] for (uint load = 0; load < CODE_LOADS; load++)
                p.codes[at * CODE_LOADS + load] = load_codes(codes, steps, first_block + block, step, load);
        }
        if (BITS != 16u) [[unroll]]
            for (uint group = 0; group < STEP_GROUPS; group++)
                p.scales_biases[at * STEP_GROUPS + group] = load_scales_biases(scales_biases, steps, first_block + block, step, group);
    }
}

void move_part(uint from, uint to, uint blocks, inout Parts p) {
    [[unroll]] for (uint i = 0; i < blocks * CODE_LOADS; i++)
        p.codes[to * 2u * CODE_LOADS + i] = p.codes[from * 2u * CODE_LOADS + i];
    [[unroll]] for (uint i = 0; i < blocks * STEP_GROUPS; i++)
        p.scales_biases[to * 2u * STEP_GROUPS + i] = p.scales_biases[from * 2u * STEP_GROUPS + i];
}

bool has_step(uint columns, uint step, uint rows) { return step < columns / 64u && has_row(rows); }

void read_rows(uint from, uint columns, uint step, uint slot, inout Rows r) {
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * 2u; i++) {
        uint64_t at = in_state(from + half_at(columns, i / 2u, step, i % 2u, lane()));
        uint to = slot * ROW_BLOCKS * 2u + i;
        r.a[to] = uvec4(0);
        if (has_step(columns, step, i / 2u)) r.a[to] = WAITS ? Shared4(at).v[0] : Weights4(at).v[0];
    }
}

bool are_fresh(uint columns, uint step, uint slot, inout Rows r) {
    bool whole = true;
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * 2u; i++)
        whole = whole && (!has_step(columns, step, i / 2u) || is_fresh(r.a[slot * ROW_BLOCKS * 2u + i]));
    return whole;
}

void await_rows(uint from, uint columns, uint step, uint slot, inout Rows r) {
    uint spins = 0u;
    while (keep_spinning(are_fresh(columns, step, slot, r), spins)) read_rows(from, columns, step, slot, r);
}

// Adds a step of `blocks` blocks in places from `place` on to the sums of blocks from `first` on, with 8 rows each.
void multiply_part(inout Parts p, uint place, inout Rows r, uint row_slot, uint first, uint blocks, inout Sums sums) {
    [[unroll]] for (uint m = 0; m < 4u; m++) {
        [[unroll]] for (uint block = 0; block < blocks; block++) {
            uint at = place + block;
            uvec4 w = weights(p.codes[at * CODE_LOADS + load_of(m)], p.codes[at * CODE_LOADS + other_load_of(m)], m,
                              p.scales_biases[at * STEP_GROUPS + m / 2u % STEP_GROUPS]);
            [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
                uvec4 a = r.a[(row_slot * ROW_BLOCKS + rows) * 2u + m / 2u];
                uint i = (first + block) * ROW_BLOCKS + rows;
                sums.s[i] = multiply_block(w, m % 2u == 0u ? a.xy : a.zw, sums.s[i]);
            }
        }
    }
}

// Polls a word of each block of 16 columns, one row of a step, until they are there. The reads that follow are many.
// Most would come too early without this, or hinder the workgroups that make the values.
void wait_for_rows(uint from, uint columns) {
    uint slots = min((columns / 64u + WARPS - 1u) / WARPS, 4u), row = min(lane_row(), SEQUENCES - 1u), spins = 0u;
    uint block = min((warp() + lane_row() % slots * WARPS) * 4u + lane_column(), columns / 16u - 1u);
    uint64_t at = in_state(from + word_at(columns, 0u, block, row * 4u, 0u));
    if (WAITS)
        while (!ALL_LANES((Shared1(at).v[0] & 1u) == tag_of_layer()) && !ANY_LANE(give_up(spins))) {}
}

// ---- sums of warps ---------------------------------------------------------------------------------------------------------

// Where the products of a workgroup meet: blocks of 16 columns of each warp, two at a time, as [column][row]. Columns 4
// to 7 of 8, and each warp, are padded against bank conflicts. Readers of columns 2c and 2c + 1 of neighbouring rows,
// of one warp or of four, then meet no bank twice. Where there is memory for it, turns alternate between two places.
const uint TURNS = WARPS > 8u ? 2u : 1u, PAIR_STRIDE = 36u, POOL_STRIDE = 72u, WARP_STRIDE = 2u * TURNS * POOL_STRIDE + 1u;
// The attention of many tokens may need more for them, and so may a recurrent layer.
const uint FRESH_ROOM = (3u * HEADS + 4u * TOKENS) * (HEAD_DIM / 4u);
#ifndef NET_ROOM
#define NET_ROOM 0u
#endif
const uint OTHER_ROOM = FRESH_ROOM > NET_ROOM ? FRESH_ROOM : NET_ROOM;
const uint POOL = WARPS * WARP_STRIDE > OTHER_ROOM ? WARPS *WARP_STRIDE : OTHER_ROOM;
shared vec2 pool[POOL];

uint turn; // of the pool
uint pool_at(uint a_warp, uint place) { return a_warp * WARP_STRIDE + ((turn & (TURNS - 1u)) * 2u + place) * POOL_STRIDE; }

// The sums of 8 rows.
void share(uint place, BLOCK_SUM sum) {
    uint at = pool_at(warp(), place) + lane() + (lane() >> 4) * 4u;
    pool[at] = vec2(sum[0], sum[1]);
    pool[at + PAIR_STRIDE] = vec2(sum[2], sum[3]);
}
// After the reads of a turn.
void end_turn() {
    if (TURNS == 1u) barrier();
    turn++;
}

// Of a warp, columns 0 1 (pair 0) or 8 9 (pair 1) of a lane of A.
vec2 shared_pair(uint a_warp, uint place, uint a_lane, uint pair) {
    uint c = a_lane & 3u, row = a_lane >> 2, at = pool_at(a_warp, place) + pair * PAIR_STRIDE + c * 8u + (c >> 1) * 4u + (row >> 1);
    return vec2(pool[at][row & 1u], pool[at + 4u][row & 1u]);
}
// Of all warps.
vec2 sum_of_warps(uint place, uint a_lane, uint pair) {
    vec2 s[4] = vec2[4](vec2(0), vec2(0), vec2(0), vec2(0));
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        s[i & 3u] += shared_pair(i, place, a_lane, pair);
    return (s[0] + s[1]) + (s[2] + s[3]);
}
// The same by four neighbours.
vec2 sum_by_four(uint place, uint a_lane, uint pair) {
    vec2 s = vec2(0);
    [[unroll]] for (uint i = 0; i < WARPS / 4u; i++)
        s += shared_pair(i * 4u + (thread() & 3u), place, a_lane, pair);
    return vec2(four_sum(s.x), four_sum(s.y));
}
