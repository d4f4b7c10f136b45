// A product of a workgroup's rows with the vector in shared memory, included once for each: PRODUCT is the prefix of its functions, DEPTH
// the features of a row, ROWS how many rows there are, and RUN how many of them a lane makes at once, which divides ROWS. PRODUCT_row()
// gives the matrix of a row, its place there, and its place among the scales and biases.

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define OWN(name) JOIN(JOIN(PRODUCT, _), name)

// Units of this warp.
uint OWN(units)() {
    const uint each = UNITS_OF_WARP(DEPTH, ROWS, RUN), all = UNITS_OF(DEPTH, ROWS, RUN);
    if (all == each * WARPS) return each;
    uint first = warp() * each;
    return first < all ? min(each, all - first) : 0u;
}

// Asks for the next unit of this warp.
void OWN(load)(uint slot) {
    uint64_t codes;
    uint at, scales_at;
    uint row = (2u * next_pair + row_half()) * RUN;
    if (ROWS % (2u * RUN) != 0u) row = min(row, ROWS - RUN);
    OWN(row)(row, codes, at, scales_at);
    const uint row_words = DEPTH * BITS / 128u; // of 16 bytes
    codes += uint64_t((at * row_words + (next_step * 16u + thread_lane()) * CODE_WORDS) * 16u);
    [[unroll]] for (uint i = 0; i < RUN; i++) {
        ring[slot + i].first = Weights4(codes).v[i * row_words];
        if (BITS == 8u) ring[slot + i].second = Weights4(codes).v[i * row_words + 1u];
    }
    uint group = ((scales_at / RUN * STEPS_OF(DEPTH) + next_step) * (512u / GROUP) + thread_lane() / (GROUP / 32u)) * RUN;
    if (RUN % 4u == 0u) {
        [[unroll]] for (uint i = 0; i < RUN; i += 4u) {
            uvec4 w = Weights4(OWN(scales_biases)()).v[(group + i) / 4u];
            [[unroll]] for (uint j = 0; j < 4u; j++)
                ring_scales_biases[slot + i + j] = w[j];
        }
    } else if (RUN % 2u == 0u) {
        [[unroll]] for (uint i = 0; i < RUN; i += 2u) {
            uvec2 w = Weights2(OWN(scales_biases)()).v[(group + i) / 2u];
            ring_scales_biases[slot + i] = w.x;
            ring_scales_biases[slot + i + 1u] = w.y;
        }
    } else [[unroll]]
        for (uint i = 0; i < RUN; i++) ring_scales_biases[slot + i] = Weights1(OWN(scales_biases)()).v[group + i];
    next_step++;
    if (next_step == STEPS_OF(DEPTH)) {
        next_step = 0u;
        next_pair++;
    }
}

// The first loads, which do not depend on the vector.
void OWN(ahead)() {
    uint units = OWN(units)(), first = warp() * UNITS_OF_WARP(DEPTH, ROWS, RUN);
    clear_ring();
    next_pair = first / STEPS_OF(DEPTH);
    next_step = first % STEPS_OF(DEPTH);
    [[unroll]] for (uint slot = 0; slot < IN_FLIGHT / RUN; slot++)
        if (slot < UNITS_OF_WARP(DEPTH, ROWS, RUN) && slot < units) OWN(load)(slot * RUN);
}

// Leaves the sums of two runs to the workgroup.
void OWN(leave)(inout float sum[MOST_RUN], inout uint pair) {
    uint at = (warp() * SUMS + pair * 2u * RUN + row_half() * RUN) * PIECES + thread_lane() / TOGETHER;
    [[unroll]] for (uint i = 0; i < RUN; i++) {
        float x = sum[i];
        [[unroll]] for (uint m = TOGETHER / 2u; m > 0u; m >>= 1)
            x += subgroupShuffleXor(x, m);
        if (thread_lane() % TOGETHER == i % TOGETHER) sums[at + i * PIECES] = x;
        sum[i] = 0.0;
    }
    pair++;
}

// Ends behind a barrier.
void OWN(multiply)() {
    const uint each = UNITS_OF_WARP(DEPTH, ROWS, RUN), flight = IN_FLIGHT / RUN;
    uint units = OWN(units)(), step = warp() * each % STEPS_OF(DEPTH), pair = 0u;
    float sum[MOST_RUN];
    [[unroll]] for (uint i = 0; i < RUN; i++)
        sum[i] = 0.0;
    for (uint unit = 0; unit < each; unit += flight) [[unroll]]
        for (uint slot = 0; slot < flight; slot++) {
            if (unit + slot >= each || unit + slot >= units) continue;
            Chunk c = chunk_get(step * 16u + thread_lane());
            [[unroll]] for (uint i = 0; i < RUN; i++)
                sum[i] += chunk_dot(ring[slot * RUN + i], ring_scales_biases[slot * RUN + i], c);
            if (unit + slot + flight < each && unit + slot + flight < units) OWN(load)(slot * RUN);
            step++;
            if (step == STEPS_OF(DEPTH)) {
                step = 0u;
                OWN(leave)(sum, pair);
            }
        }
    if (step != 0u) OWN(leave)(sum, pair);
    barrier();
}

// The sum of a row, by its parts in their order.
float OWN(sum)(uint row) {
    const uint each = UNITS_OF_WARP(DEPTH, ROWS, RUN);
    uint pair = row / (2u * RUN), of_pair = row % (2u * RUN);
    uint first = pair * STEPS_OF(DEPTH) / each, last = (pair * STEPS_OF(DEPTH) + STEPS_OF(DEPTH) - 1u) / each;
    float x = 0.0;
    for (uint i = first; i <= last; i++) [[unroll]]
        for (uint piece = 0; piece < PIECES; piece++)
            x += sums[(i * SUMS + (pair - i * each / STEPS_OF(DEPTH)) * 2u * RUN + of_pair) * PIECES + piece];
    return x;
}

#undef PRODUCT
#undef DEPTH
#undef ROWS
#undef RUN
#undef OWN
#undef JOIN
#undef JOIN2
