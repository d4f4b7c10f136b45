// Products of a phase: the warps of a workgroup share the depth of a unit of columns, in steps of 64, and meet in shared memory.

const uint HIDDEN_STEPS = HIDDEN / 64u, HIDDEN_SLOTS = (HIDDEN_STEPS + WARPS - 1u) / WARPS;
const bool WIDE = HIDDEN_SLOTS > 2u; // so that there is one block of 8 rows at most

// ---- words that workgroups hand over ---------------------------------------------------------------------------------------

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

// Whether what was read has to be read again.
bool keep_spinning(bool whole, inout uint spins) { return WAITS && !ALL_LANES(whole) && !ANY_LANE(give_up(spins)); }

// ---- rows ------------------------------------------------------------------------------------------------------------------

// Steps of `columns` of an array in the order of A, from step `first` on: one for each warp, and so on.
struct Rows {
    uvec4 a[HIDDEN_SLOTS * ROW_BLOCKS * 2u];
};

// A step of each block of a unit. Three are on their way in variables of their own, which change places: an array of them ends up in memory.
struct Part {
    Step w[2];
};

bool has_rows(uint columns, uint first, uint slots, uint i) {
    uint slot = i / 2u / ROW_BLOCKS;
    return slot < slots && first + slot * WARPS + warp() < columns / 64u && has_row(i / 2u % ROW_BLOCKS);
}

void read_rows(uint from, uint columns, uint first, uint slots, inout Rows r) {
    [[unroll]] for (uint i = 0; i < HIDDEN_SLOTS * ROW_BLOCKS * 2u; i++) {
        uint64_t at = in_state(from + half_at(columns, i / 2u % ROW_BLOCKS, first + i / 2u / ROW_BLOCKS * WARPS + warp(), i % 2u, lane()));
        r.a[i] = uvec4(0);
        if (has_rows(columns, first, slots, i)) r.a[i] = WAITS ? Shared4(at).v[0] : Weights4(at).v[0];
    }
}

bool are_fresh(uint columns, uint first, uint slots, inout Rows r) {
    bool whole = true;
    [[unroll]] for (uint i = 0; i < HIDDEN_SLOTS * ROW_BLOCKS * 2u; i++)
        whole = whole && (!has_rows(columns, first, slots, i) || is_fresh(r.a[i]));
    return whole;
}

void await_rows(uint from, uint columns, uint first, uint slots, inout Rows r) {
    uint spins = 0u;
    while (keep_spinning(are_fresh(columns, first, slots, r), spins)) read_rows(from, columns, first, slots, r);
}

// Words of A of matrix m of a step.
uvec4 rows_of_step(inout Rows r, uint slot, uint m) {
    uvec4 a = r.a[slot * ROW_BLOCKS * 2u + m / 2u], b = r.a[(slot + 1u) * ROW_BLOCKS * 2u - 2u + m / 2u];
    return m % 2u == 0u ? rows_of(a.xy, b.xy) : rows_of(a.zw, b.zw);
}

// Looks at a word of each block of 16 columns, one row of a step, until they are there: the readings that follow are many, and most of them
// would come too early, or hinder those who make what is waited for.
void wait_for_rows(uint from, uint columns) {
    uint slots = min((columns / 64u + WARPS - 1u) / WARPS, 4u), row = min(lane_row(), SEQUENCES - 1u), spins = 0u;
    uint block = min((warp() + lane_row() % slots * WARPS) * 4u + lane_column(), columns / 16u - 1u);
    uint64_t at = in_state(from + word_at(columns, 0u, block, row * 4u, 0u));
    if (WAITS)
        while (!ALL_LANES((Shared1(at).v[0] & 1u) == tag_of_layer()) && !ANY_LANE(give_up(spins))) {}
}

// ---- sums of warps ---------------------------------------------------------------------------------------------------------

// Where the products of a workgroup meet: blocks of 16 columns of each warp, two at a time. The pairs of two columns of a lane lie 40 apart, and
// warps lie so that four neighbours may read those of four warps. Where there is memory for it, turns alternate between two places.
const uint TURNS = WARPS > 8u ? 2u : 1u, PAIR_STRIDE = 40u, POOL_STRIDE = 72u, WARP_STRIDE = 2u * TURNS * POOL_STRIDE + 2u;
// The attention of many tokens may need more for them.
const uint FRESH_ROOM = (3u * HEADS + 4u * TOKENS) * (HEAD_DIM / 4u);
const uint POOL = WARPS * WARP_STRIDE > FRESH_ROOM ? WARPS *WARP_STRIDE : FRESH_ROOM;
shared vec2 pool[POOL];

uint turn; // of the pool
uint pool_at(uint a_warp, uint place) { return a_warp * WARP_STRIDE + ((turn & (TURNS - 1u)) * 2u + place) * POOL_STRIDE; }

// The sums of 8 rows.
void share(uint place, uint rows, SUM sum) {
    uint at = pool_at(warp(), place) + lane();
    pool[at] = rows == 0u ? vec2(sum[0], sum[1]) : vec2(sum[4], sum[5]);
    pool[at + PAIR_STRIDE] = rows == 0u ? vec2(sum[2], sum[3]) : vec2(sum[6], sum[7]);
}
// Behind the readings of a turn.
void end_turn() {
    if (TURNS == 1u) barrier();
    turn++;
}

// Columns 0 1 (pair 0) or 8 9 (pair 1) of a lane.
vec2 sum_of_warps(uint place, uint a_lane, uint pair) {
    vec2 s[4] = vec2[4](vec2(0), vec2(0), vec2(0), vec2(0));
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        s[i & 3u] += pool[pool_at(i, place) + pair * PAIR_STRIDE + a_lane];
    return (s[0] + s[1]) + (s[2] + s[3]);
}
// The same by four neighbours.
vec2 sum_by_four(uint place, uint a_lane, uint pair) {
    vec2 s = vec2(0);
    [[unroll]] for (uint i = 0; i < WARPS / 4u; i++)
        s += pool[pool_at(i * 4u + (thread() & 3u), place) + pair * PAIR_STRIDE + a_lane];
    return vec2(four_sum(s.x), four_sum(s.y));
}
