// Columns of a projection, added to the residual: of attended values (o) or gated values (down). A unit is a block of 16 columns, of a wide
// residual two that share one reading of the values, and its workgroup alone changes them.

const uint UNIT_BLOCKS = WIDE ? 2u : 1u, UNITS = HIDDEN / 16u / UNIT_BLOCKS;
const uint AT_ONCE = WIDE ? 2u : 4u; // steps of a warp

struct Steps {
    Step w[AT_ONCE * UNIT_BLOCKS];
};
struct Rows {
    uvec4 a[AT_ONCE * ROW_BLOCKS * 2u];
};

void load_steps(uint64_t codes, uint64_t scales_biases, uint steps, uint unit, uint first, inout Steps s) {
    [[unroll]] for (uint i = 0; i < AT_ONCE * UNIT_BLOCKS; i++) {
        uint step = first + i / UNIT_BLOCKS * WARPS;
        if (step < steps) s.w[i] = load_step(codes, scales_biases, steps, unit * UNIT_BLOCKS + i % UNIT_BLOCKS, step + warp());
    }
}

// Looks at a word of each block of 16 columns, one row of a step.
void wait_for_rows(uint from, uint columns) {
    uint slots = min((columns / 64u + WARPS - 1u) / WARPS, AT_ONCE), row = min(lane_row(), SEQUENCES - 1u);
    uint block = min((warp() + lane_row() % slots * WARPS) * 4u + lane_column(), columns / 16u - 1u);
    wait_for_tag(from + word_at(columns, 0u, block, row * 4u, 0u), tag_of_layer(), ONE_BIT);
}

// Waits for them.
void load_rows(uint from, uint columns, uint first, inout Rows r) {
    uint spins = 0u, steps = columns / 64u;
    bool whole;
    do {
        whole = true;
        [[unroll]] for (uint i = 0; i < AT_ONCE * ROW_BLOCKS * 2u; i++) {
            uint step = first + i / 2u / ROW_BLOCKS * WARPS, rows = i / 2u % ROW_BLOCKS;
            r.a[i] = uvec4(0);
            if (step < steps && step + warp() < steps && has_row(rows)) {
                r.a[i] = Shared4(in_state(from + half_at(columns, rows, step + warp(), i % 2u, lane()))).v[0];
                whole = whole && is_fresh(r.a[i], tag_of_layer(), ONE_BIT);
            }
        }
    } while (keep_spinning(whole, spins));
}

void multiply_steps(inout Steps s, inout Rows r, uint steps, uint first, inout SUM sums[UNIT_BLOCKS]) {
    [[unroll]] for (uint n = 0; n < AT_ONCE * 4u; n++) {
        uint i = n / 4u, m = n % 4u;
        if (first + i * WARPS >= steps) continue;
        uvec4 a = r.a[i * ROW_BLOCKS * 2u + m / 2u], b = r.a[i * ROW_BLOCKS * 2u + (ROW_BLOCKS == 2u ? 2u : 0u) + m / 2u];
        uvec4 rows = m % 2u == 0u ? rows_of(a.xy, b.xy) : rows_of(a.zw, b.zw);
        [[unroll]] for (uint block = 0; block < UNIT_BLOCKS; block++)
            sums[block] = multiply(rows, weights(s.w[i * UNIT_BLOCKS + block], m), sums[block]);
    }
}

// `writes`: of the residual in this layer, this one included. `wait_first`: where what it waits for is long in coming, readings in vain
// would hinder those who make it. Of a wide residual the next steps are on their way.
void project(uint from, uint columns, uint64_t codes, uint64_t scales_biases, float scale, uint writes, bool wait_first) {
    uint steps = columns / 64u;
    [[dont_unroll]] for (uint unit = gl_WorkGroupID.x; unit < UNITS; unit += gl_NumWorkGroups.x) {
        Steps s, next;
        Rows r;
        load_steps(codes, scales_biases, steps, unit, 0u, s);
        // The pair of columns of a row that this thread finishes.
        uint place = thread() >> 6, at = thread() & 63u, rows = place / UNIT_BLOCKS;
        bool owns = place < ROW_BLOCKS * UNIT_BLOCKS && row_of_pair(rows, at) < SEQUENCES;
        uint64_t own = in_state(x_at(min(rows, ROW_BLOCKS - 1u), unit * UNIT_BLOCKS + place % UNIT_BLOCKS, 0u) + at * 8u);
        vec2 x = uintBitsToFloat(Shared2(own).v[0]);
        if (wait_first) wait_for_rows(from, columns);
        SUM sums[UNIT_BLOCKS];
        [[unroll]] for (uint block = 0; block < UNIT_BLOCKS; block++)
            sums[block] = no_sum();
        [[dont_unroll]] for (uint first = 0; first < steps; first += AT_ONCE * WARPS) {
            if (WIDE) load_steps(codes, scales_biases, steps, unit, first + AT_ONCE * WARPS, next);
            else if (first > 0u) load_steps(codes, scales_biases, steps, unit, first, s);
            load_rows(from, columns, first, r);
            multiply_steps(s, r, steps, first, sums);
            if (WIDE) [[unroll]]
                for (uint i = 0; i < AT_ONCE * UNIT_BLOCKS; i++) s.w[i] = next.w[i];
        }
        barrier(); // others have read what lies there
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS * UNIT_BLOCKS; i++)
            share(i, i / UNIT_BLOCKS, sums[i % UNIT_BLOCKS]);
        barrier();
        if (!owns) continue;
        uvec2 words = floatBitsToUint(x + scale * sum_of_warps(place, at));
        uint mark = mark_of_residual(writes);
        Shared2(own).v[0] = uvec2(tagged(words.x, mark, TWO_BITS), tagged(words.y, mark, TWO_BITS));
    }
}
