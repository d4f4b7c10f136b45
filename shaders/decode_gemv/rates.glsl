// Rows of b and a of a recurrent layer, which are fewer than workgroups or a few each. A team of 16 lanes makes 512 features of a row, and the
// workgroup adds these sums up in their order. What is multiplied is in shared memory, in the order that codes of as many bits take.

const uint RATES_ROWS = (2u * VALUE_HEADS + GRID - 1u) / GRID; // of a workgroup; the last ones may have none
const uint RATES_BITS = CODE_BITS(RATES_FORMAT), RATES_STEPS = STEPS_OF(HIDDEN);
const uint RATES_UNITS = RATES_ROWS * RATES_STEPS, RATES_ROUNDS = (RATES_UNITS + TEAMS - 1u) / TEAMS;

shared float rates_sums[RATES_ROUNDS * TEAMS];
Codes32 rates_codes[2u * RATES_ROUNDS]; // of 16 bits two to a unit
uint rates_words[RATES_ROUNDS];

uint rates_unit(uint n) { return min(team() + n * TEAMS, RATES_UNITS - 1u); }
uint rates_row(uint n) { return min(workgroup() * RATES_ROWS + rates_unit(n) / RATES_STEPS, 2u * VALUE_HEADS - 1u); }
uint rates_chunk(uint n) { return rates_unit(n) % RATES_STEPS * 16u + thread_lane(); } // or after the last one

// Asks for the codes of this lane.
void ask_rates() {
    [[unroll]] for (uint n = 0; n < RATES_ROUNDS; n++) {
        uint row = rates_row(n), at = row < VALUE_HEADS ? row : row - VALUE_HEADS, chunk = min(rates_chunk(n), HIDDEN / 32u - 1u);
        uint64_t codes = row < VALUE_HEADS ? ADDRESS(RATE) : ADDRESS(STEP);
        if (RATES_BITS == 16u) {
            [[unroll]] for (uint part = 0; part < 4u; part++) {
                uint eight = rates_unit(n) % RATES_STEPS * 64u + part * 16u + thread_lane();
                uvec4 c = uvec4(0);
                if (eight < HIDDEN / 8u) c = Weights4(codes).v[at * (HIDDEN / 8u) + eight];
                if (part % 2u == 0u) rates_codes[2u * n + part / 2u].first = c;
                else rates_codes[2u * n + part / 2u].second = c;
            }
        } else {
            uint quad = (at * (HIDDEN / 32u) + chunk) * (RATES_BITS / 4u);
            rates_codes[n].first = Weights4(codes).v[quad];
            if (RATES_BITS == 8u) rates_codes[n].second = Weights4(codes).v[quad + 1u];
            const uint group = GROUP_SIZE(RATES_FORMAT);
            rates_words[n] = Weights1(ADDRESS(RATES_SCALES_BIASES)).v[row * (HIDDEN / group) + chunk / (group / 32u)];
        }
    }
}

// Leaves the sums of teams to the workgroup; a barrier has to follow.
void multiply_rates() {
    [[unroll]] for (uint n = 0; n < RATES_ROUNDS; n++) {
        float x;
        if (RATES_BITS == 16u)
            x = dense_dot(rates_codes[2u * n], rates_codes[2u * n + 1u], eights_get(0u, rates_unit(n) % RATES_STEPS * 16u, HIDDEN));
        else {
            Chunk c = chunk_get(min(rates_chunk(n), HIDDEN / 32u - 1u));
            if (rates_chunk(n) >= HIDDEN / 32u) c.scale = c.sum = 0.0;
            uint word = IS_E2M1(RATES_FORMAT) ? ROW_BYTES(rates_words, n, 0u, RATES_FORMAT) : rates_words[n];
            x = chunk_dot(rates_codes[n], word, c, RATES_FORMAT, rates_row(n) < VALUE_HEADS ? 0u : 1u);
        }
        [[unroll]] for (uint m = 1u; m < 16u; m <<= 1)
            x += lane_xor(x, m);
        if (thread_lane() == 0u) rates_sums[team() + n * TEAMS] = x;
    }
}

float rates_sum(uint row) {
    float x = 0.0;
    [[unroll]] for (uint step = 0; step < RATES_STEPS; step++)
        x += rates_sums[row * RATES_STEPS + step];
    return x;
}
