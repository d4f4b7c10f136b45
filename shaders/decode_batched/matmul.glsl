// Products of a phase: the warps of a workgroup share the depth of a unit of columns, in steps of 64, and meet in shared memory.

const uint ALL_PHASES = 31u;
bool waits() { return PHASES == ALL_PHASES; }

// ---- words that workgroups hand over ---------------------------------------------------------------------------------------

// Marks in the lowest bits. What a layer writes once has a bit that changes from layer to layer: its readers have seen the one before.
// The residual is written twice a layer, and some workgroups read it only behind o or only behind down: writes are counted in two bits.
const uint ONE_BIT = 1u, TWO_BITS = 3u;
uint tag_of_layer() { return ~layer & ONE_BIT; }
uint mark_of_residual(uint writes) { return (2u * layer + writes) & TWO_BITS; } // writes of this layer
uint tagged(uint word, uint tag, uint bits) { return (word & ~bits) | tag; }
bool is_fresh(uvec4 w, uint tag, uint bits) { return (((w.x ^ tag) | (w.y ^ tag) | (w.z ^ tag) | (w.w ^ tag)) & bits) == 0u; }

// Counts a poll that came too early. Beyond the spin limit something is wrong: the status says so, and all workgroups leave.
bool give_up(inout uint spins) {
    if (++spins >= pc.p.spin_limit) Shared1(pc.address[STATUS]).v[0] = 1u;
    else if ((spins & 63u) != 0u) return false;
    return Shared1(pc.address[STATUS]).v[0] != 0u;
}

// Looks at a word for each lane until they are there: the readings that follow are many, and most of them would come too early.
void wait_for_tag(uint at, uint tag, uint bits) {
    uint spins = 0u;
    if (waits())
        while (!ALL_LANES((Shared1(in_state(at)).v[0] & bits) == tag) && !ANY_LANE(give_up(spins)));
}
// Whether what was read has to be read again.
bool keep_spinning(bool whole, inout uint spins) { return waits() && !ALL_LANES(whole) && !ANY_LANE(give_up(spins)); }

// ---- sums of warps ---------------------------------------------------------------------------------------------------------

// Vec8 rows of a sum go to shared memory; to be called between barriers.
void share(uint place, uint rows, SUM sum) {
    uint at = (warp() * POOL_PLACES + place) * POOL_STRIDE + lane();
    pool[at] = rows == 0u ? vec2(sum[0], sum[1]) : vec2(sum[4], sum[5]);
    pool[at + PAIR_STRIDE] = rows == 0u ? vec2(sum[2], sum[3]) : vec2(sum[6], sum[7]);
}

// Pair `at` of 64: columns 0 1 (or 8 9 if odd) of lane at / 2.
vec2 sum_of_warps(uint place, uint at) {
    vec2 s[4] = vec2[4](vec2(0), vec2(0), vec2(0), vec2(0));
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        s[i & 3u] += pool[(i * POOL_PLACES + place) * POOL_STRIDE + (at & 1u) * PAIR_STRIDE + (at >> 1)];
    return (s[0] + s[1]) + (s[2] + s[3]);
}
uint row_of_pair(uint rows, uint at) { return rows * 8u + (at >> 3); }
uint column_of_pair(uint at) { return column_of(at >> 1, (at & 1u) * 2u); }
