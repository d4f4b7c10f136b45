// Columns of a projection, added to the residual, and what the next norm multiplies: of attended values (o) or gated
// values (down). A unit is a block of 16 columns, or of 2,049 to 4,096 features two that share one reading of the values. Its
// workgroup alone changes them.

const uint UNITS = HIDDEN / 16u / UNIT_BLOCKS;

// `to` and `to_squares`: of the norm that is next, which has these weights and is read in a layer that has this tag.
void project(uint from, uint columns, uint64_t codes, uint64_t scales_biases, float scale, uint64_t norm, uint to, uint to_squares,
             uint tag) {
    uint steps = columns / 64u, ahead = project_ahead(steps);
    [[dont_unroll]] for (uint unit = gl_WorkGroupID.x; unit < UNITS; unit += gl_NumWorkGroups.x) {
        Parts p;
        Rows r;
        [[unroll]] for (uint slot = 0; slot < ahead; slot++)
            if (slot * WARPS < steps)
                load_part(codes, scales_biases, ALONE, steps, unit * UNIT_BLOCKS, UNIT_BLOCKS, slot * WARPS + warp(), slot * 2u, p);
        // The pair of columns of a row that this thread finishes; four neighbours have 8 columns.
        uint place = thread() >> 6, pair = thread() >> 5 & 1u, rows = min(place / UNIT_BLOCKS, ROW_BLOCKS - 1u),
             row = rows * 8u + lane_row();
        uint block = unit * UNIT_BLOCKS + place % UNIT_BLOCKS, eight = block * 2u + pair;
        bool owns = place < ROW_BLOCKS * UNIT_BLOCKS && row < SEQUENCES;
        uint64_t own = in_state(x_at(rows, block, lane()) + pair * 8u);
        vec2 x = vec2(0), weight = vec2(0);
        if (owns) {
            x = uintBitsToFloat(Shared2(own).v[0]);
            weight = norm_pair(norm, eight * 4u + lane_column());
        }
        wait_for_rows(from, columns);
        if (WAITS && unit == gl_WorkGroupID.x) barrier(); // others have read what lies in the pool
        [[unroll]] for (uint slot = 0; slot < ahead; slot++)
            read_rows(from, columns, slot * WARPS + warp(), slot, r);
        Sums sums;
        clear(sums);
        [[dont_unroll]] for (uint first = 0; first < steps; first += ahead * WARPS) {
            [[unroll]] for (uint slot = 0; slot < ahead; slot++) {
                uint at = first + slot * WARPS, next = at + ahead * WARPS;
                if (at < steps) {
                    await_rows(from, columns, at + warp(), slot, r);
                    multiply_part(p, slot * 2u, r, slot, 0u, UNIT_BLOCKS, sums);
                    if (next < steps) {
                        load_part(codes, scales_biases, ALONE, steps, unit * UNIT_BLOCKS, UNIT_BLOCKS, next + warp(), slot * 2u, p);
                        read_rows(from, columns, next + warp(), slot, r);
                    }
                }
            }
        }
        [[unroll]] for (uint i = 0; i < UNIT_BLOCKS * ROW_BLOCKS; i++)
            share(i, sums.s[i]);
        barrier();
        if (owns) x += scale * sum_of_warps(place, lane(), pair);
        float square = four_sum(dot(x, x));
        if (owns) {
            Shared2(own).v[0] = floatBitsToUint(x);
            Shared1(in_state(to + word_at(HIDDEN, rows, block, lane(), pair))).v[0] = tagged(before_norm(x, weight), tag);
            if (lane_column() == 0u) Shared1(in_state(square_at(to_squares, row, eight))).v[0] = tagged(floatBitsToUint(square), tag);
        }
        end_turn();
    }
}
