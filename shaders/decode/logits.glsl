// The product of a head with the normalised residual, for the kernels at the end of a decoder. It gives logits = W (x /
// rms(x) * w), rounded to DTYPE_OUT, and the largest of them per workgroup.
//
// 32 lanes make RUN rows at a time, and go on by the rows of the whole grid. A load takes 512 contiguous bytes of a
// row, and one reading of the activations serves all RUN rows. A row beyond the vocabulary is not kept. Scales and
// biases come packed, [row / 4][group][row % 4], padded to whole fours, and so do the bytes of small floats. The best are (index, ordered key); of equal
// logits the lowest index wins.
//
// The grid is (sequences, workgroups): those that read the same weights for different sequences start together.

#include "include/combine.h"

shared uvec2 warp_best[WARPS];

const uint HEAD_BITS = CODE_BITS(HEAD_FORMAT);

// Rows that 32 lanes take at once: few of them, all asked for ahead of those before.
const bool SHORT = CHUNK_ROUNDS == 1u && HEAD_BITS != 16u;
const uint RUN = HEAD_BITS >= 8u || SHORT ? 4u : 8u;
const uint RUN_LANES = 32u / RUN;            // that have the sum of a row
const uint ROUND_ROWS = THREADS / 32u * RUN; // of a workgroup
const uint HEAD_GROUPS = HIDDEN / GROUP_SIZE(HEAD_FORMAT);

// The loads of a lane: 32 features of each row, of 16 bits two codes to a row.
const uint MAX_RUN = 8u;
Codes32 codes[MAX_RUN];
uvec4 scales_biases[MAX_RUN / 4u];

// Eight `eight` of a row of dense weights; zeros after its last feature.
uvec4 load_eight(uint from, uint eight) {
    uvec4 w = uvec4(0);
    if (HIDDEN % 1024u == 0u || eight < HIDDEN / 8u) w = Weights4(pc.address[HEAD]).v[from * 4u + eight];
    return w;
}

void load_row(uint row, uint chunk, uint i) {
    uint from = min(row + i, pc.p.vocabulary - 1u) * CHUNKS;
    if (HEAD_BITS == 16u) {
        uint first = chunk / 32u * 128u + lane(), to = 2u * i % MAX_RUN;
        codes[to].first = load_eight(from, first);
        codes[to].second = load_eight(from, first + 32u);
        codes[to + 1u].first = load_eight(from, first + 64u);
        codes[to + 1u].second = load_eight(from, first + 96u);
    } else codes[i] = load_codes(pc.address[HEAD], from + min(chunk, CHUNKS - 1u), HEAD_FORMAT);
}
void load_scales_biases(uint row, uint chunk) {
    uint group = min(chunk, CHUNKS - 1u) * 32u / GROUP_SIZE(HEAD_FORMAT);
    if (HEAD_BITS != 16u) [[unroll]]
        for (uint i = 0; i < RUN / 4u; i++) {
            uint at = min(row / 4u + i, (pc.p.vocabulary - 1u) / 4u) * HEAD_GROUPS + group;
            uint64_t words = pc.address[SCALES_BIASES];
            if (!IS_E2M1(HEAD_FORMAT)) scales_biases[i] = Weights4(words).v[at];
            else if (SCALE_BYTES(HEAD_FORMAT) == 1u) scales_biases[i].x = Weights1(words).v[at];
            else scales_biases[i].xy = Weights2(words).v[at];
        }
}

// What chunk_dot() takes as the scales and biases of row `i`.
uint beside_row(uvec4 beside[MAX_RUN / 4u], uint i) {
    if (IS_E2M1(HEAD_FORMAT)) return ROW_BYTES(beside[i / 4u], 0u, i % 4u, HEAD_FORMAT);
    return beside[i / 4u][i % 4u];
}

float rounded(float x) { return rounded_as(x, DTYPE_OUT); }

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

uvec2 better_of_lanes(uvec2 best, uint distance) {
    uvec2 other = uvec2(lane_xor(best.x, distance), lane_xor(best.y, distance));
    return better(other, best) ? other : best;
}

// The best of all threads, where 4 neighbours have the same; for every thread.
uvec2 best_of_4_lanes(uvec2 best) {
    [[unroll]] for (uint m = 4u; m < 32u; m <<= 1)
        best = better_of_lanes(best, m);
    barrier(); // all have read what stood there
    if (lane() == 0u) warp_best[warp()] = best;
    barrier();
    best = warp_best[0];
    [[unroll]] for (uint i = 1; i < WARPS; i++)
        if (better(warp_best[i], best)) best = warp_best[i];
    return best;
}

// Of RUN values: lane l gets the sum of value l / RUN_LANES.
float lane_sums(float x[MAX_RUN]) { return RUN == 4u ? lane_sum4(x[0], x[1], x[2], x[3]) : lane_sum8(x); }

const uvec2 NONE = uvec2(0xffffffffu, 0u);

// Opens the next token as far as nothing depends on what it is. The last workgroup has the least to do otherwise. If
// barriers stand between layers, the layers themselves zero what they have used.
void open_next() {
    uint now = position();
#if ACCUMULATORS == 2
    clear_accumulators(LAYER, now, gl_WorkGroupID.y * THREADS + thread(), gl_NumWorkGroups.y * THREADS);
#endif
    if (gl_WorkGroupID.y + 1u == gl_NumWorkGroups.y) open_rope_angles(min(now + 1u, pc.p.capacity - 1u));
}

// For the kernel that includes this. meanwhile() runs while the first weights are on their way. take_logit() gets a
// logit, which RUN_LANES lanes have alike, and the round of its workgroup; it gives the logit as it is then compared.
void meanwhile();
float take_logit(uint row, uint round, float x);

// The best of this workgroup's logits, which are NaN if a number was lost on the way to them.
uvec2 best_logit() {
    uint lost = U32s(state_lost()).v[0];
    uint step = gl_NumWorkGroups.y * ROUND_ROWS, row = gl_WorkGroupID.y * ROUND_ROWS + warp() * RUN;
    load_scales_biases(row, lane());
    [[unroll]] for (uint i = 0; i < RUN; i++)
        load_row(row, lane(), i);
    Rows rows;
    const uint norm_bytes = HIDDEN * (DTYPE_W == DTYPE_F32 ? 4u : 2u);
    load_norm(pc.address[NORM] + POST_NORM * norm_bytes, rows);
    load_residual(state_before(LAYER), rows);
#if ACCUMULATORS != 3
    if (POST_NORM != 0u) {
        PartNorm part_norm;
        load_part_norm(pc.address[NORM], part_norm);
        load_carried(1u);
        add_part(part_norm, rows);
    }
#endif
    meanwhile();
    norm_to_shared(rows, HEAD_FORMAT);
    float scale = norm_scale();
    Chunk kept = chunk_get(min(lane(), CHUNKS - 1u));
    uint round_ = 0u;
    uvec2 best = NONE;
    // As many rounds for every warp: lanes meet in barriers if there are no shuffles.
    for (uint base = gl_WorkGroupID.y * ROUND_ROWS; base < pc.p.vocabulary; base += step) {
        float sums[MAX_RUN];
        [[unroll]] for (uint i = 0; i < MAX_RUN; i++)
            sums[i] = 0.0;
        [[dont_unroll]] for (uint chunk = lane(); chunk < 32u * CHUNK_ROUNDS; chunk += 32u) {
            // The next words of these rows and of the next rows replace the words that are multiplied.
            bool turns = chunk + 32u >= 32u * CHUNK_ROUNDS;
            uint next = turns ? row + step : row, next_chunk = turns ? lane() : chunk + 32u;
            bool more = SHORT || next < pc.p.vocabulary;
            Chunk c = kept;
            Eights e;
            if (HEAD_BITS == 16u) e = eights_get(chunk / 32u);
            else if (!SHORT) c = chunk_get(min(chunk, CHUNKS - 1u));
            if (CHUNKS % 32u != 0u && chunk >= CHUNKS) c.scale = c.sum = 0.0;
            Codes32 at_hand[MAX_RUN] = codes;
            uvec4 beside[MAX_RUN / 4u] = scales_biases;
            if (more) load_scales_biases(next, next_chunk);
            [[unroll]] for (uint i = 0; i < RUN; i++)
                if (SHORT) load_row(next, next_chunk, i);
            [[unroll]] for (uint i = 0; i < RUN; i++) {
                if (HEAD_BITS == 16u) sums[i] += dense_dot(at_hand[2u * i % MAX_RUN], at_hand[2u * i % MAX_RUN + 1u], e);
                else sums[i] += chunk_dot(at_hand[i], beside_row(beside, i), c, HEAD_FORMAT, 0u);
                if (!SHORT && more) load_row(next, next_chunk, i);
            }
        }
        float x = rounded(lane_sums(sums) * scale);
        if (lost != 0u) x = uintBitsToFloat(0x7fc00000u);
        uint mine = row + lane() / RUN_LANES;
        if (mine < pc.p.vocabulary) {
            uvec2 key = uvec2(mine, ordered_key(floatBitsToUint(take_logit(mine, round_, x)), DTYPE_F32));
            if (better(key, best)) best = key;
        }
        row += step;
        round_++;
    }
    return best_of_4_lanes(best);
}
