// Columns of a projection, added to the residual, and what the next norm multiplies: of attended values (o) or gated values (down). A unit is
// a block of 16 columns, of a wide residual two that share one reading of the values, and its workgroup alone changes them.

const uint UNIT_BLOCKS = WIDE ? 2u : 1u, UNITS = HIDDEN / 16u / UNIT_BLOCKS;

void load_part(uint64_t codes, uint64_t scales_biases, uint steps, uint unit, uint first, inout Part p) {
    if (first < steps) [[unroll]]
        for (uint block = 0; block < UNIT_BLOCKS; block++)
            p.w[block] = load_step(codes, scales_biases, steps, unit * UNIT_BLOCKS + block, first + warp());
}

// `to` and `to_squares`: of the norm that is next, which has these weights and is read in a layer that has this tag.
void project(uint from, uint columns, uint64_t codes, uint64_t scales_biases, float scale, uint64_t norm, uint to, uint to_squares,
             uint tag) {
    uint steps = columns / 64u;
    if (WAITS) barrier(); // others have read what lies in the pool
    [[dont_unroll]] for (uint unit = gl_WorkGroupID.x; unit < UNITS; unit += gl_NumWorkGroups.x) {
        Part now, next, third;
        load_part(codes, scales_biases, steps, unit, 0u, now);
        load_part(codes, scales_biases, steps, unit, WARPS, next);
        load_part(codes, scales_biases, steps, unit, 2u * WARPS, third);
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
        Rows rows_now, rows_next, rows_third;
        read_rows(from, columns, 0u, 1u, rows_now);
        read_rows(from, columns, WARPS, 1u, rows_next);
        SUM sums[UNIT_BLOCKS];
        [[unroll]] for (uint i = 0; i < UNIT_BLOCKS; i++)
            sums[i] = no_sum();
        [[dont_unroll]] for (uint first = 0; first < steps; first += WARPS) {
            read_rows(from, columns, first + 2u * WARPS, 1u, rows_third);
            await_rows(from, columns, first, 1u, rows_now);
            [[unroll]] for (uint m = 0; m < 4u; m++) {
                uvec4 rows = rows_of_step(rows_now, 0u, m);
                [[unroll]] for (uint block = 0; block < UNIT_BLOCKS; block++)
                    sums[block] = multiply(rows, weights(now.w[block], m), sums[block]);
            }
            now = next;
            next = third;
            [[unroll]] for (uint i = 0; i < 2u * ROW_BLOCKS; i++) {
                rows_now.a[i] = rows_next.a[i];
                rows_next.a[i] = rows_third.a[i];
            }
            load_part(codes, scales_biases, steps, unit, first + 3u * WARPS, third);
        }
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS * UNIT_BLOCKS; i++)
            share(i, i / UNIT_BLOCKS, sums[i % UNIT_BLOCKS]);
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
