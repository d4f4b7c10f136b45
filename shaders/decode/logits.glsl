// The product of a head with the normalised residual, for the kernels at the end of a decoder: logits = W (x / rms(x) * w),
// rounded to DTYPE_OUT, and the largest of them per workgroup.
//
// 32 lanes make 4 rows at a time, every so many; a row beyond the vocabulary is not kept. Scales and biases come packed,
// [row / 4][group][row % 4], padded to whole fours. The best are (index, ordered key); of equal logits the lowest index wins.
//
// The grid is (sequences, workgroups): those that read the same weights for different sequences start together.

#include "include/combine.h"

shared uvec2 warp_best[WARPS];

struct Weights {
    Codes32 codes[4];
    uvec4 scales_biases;
};

Weights load_weights(uint row, uint chunk) {
    uint at = min(chunk, CHUNKS - 1u);
    Weights w;
    [[unroll]] for (uint r = 0; r < 4u; r++)
        w.codes[r] = load_codes(pc.address[HEAD], min(row + r, pc.p.vocabulary - 1u) * CHUNKS + at);
    w.scales_biases = Weights4(pc.address[SCALES_BIASES]).v[row / 4u * GROUPS + at * 32u / GROUP];
    return w;
}

float rounded(float x) { return rounded_as(x, DTYPE_OUT); }

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

uvec2 better_of_lanes(uvec2 best, uint distance) {
    uvec2 other = uvec2(lane_xor(best.x, distance), lane_xor(best.y, distance));
    return better(other, best) ? other : best;
}

// The best of all threads, where 8 neighbours have the same; for every thread.
uvec2 best_of_8_lanes(uvec2 best) {
    [[unroll]] for (uint m = 8u; m < 32u; m <<= 1)
        best = better_of_lanes(best, m);
    barrier(); // all have read what stood there
    if (lane() == 0u) warp_best[warp()] = best;
    barrier();
    best = warp_best[0];
    [[unroll]] for (uint i = 1; i < WARPS; i++)
        if (better(warp_best[i], best)) best = warp_best[i];
    return best;
}

const uvec2 NONE = uvec2(0xffffffffu, 0u);

// Opens the next token as far as nothing depends on what it is. The last workgroup has the least to do otherwise. Where barriers
// stand between layers, those have cleared all behind them.
void open_next() {
    uint now = position();
#if ACCUMULATORS == 2
    clear_accumulators(LAYER, now, gl_WorkGroupID.y * THREADS + thread(), gl_NumWorkGroups.y * THREADS);
#endif
    if (gl_WorkGroupID.y + 1u == gl_NumWorkGroups.y) open_rope_angles(min(now + 1u, pc.p.capacity - 1u));
}

// For the kernel that includes this: what it does while the first weights are on their way, and with a logit, which 8 lanes have
// alike, in which round of its workgroup; as the logit is then compared.
void meanwhile();
float take_logit(uint row, uint round, float x);

// The best of this workgroup's logits, which are NaN where a number was lost on the way to them.
uvec2 best_logit() {
    uint lost = U32s(state_lost()).v[0];
    uint last = (pc.p.vocabulary - 1u) & ~3u, step = gl_NumWorkGroups.y * WARPS * 4u;
    uint row = (gl_WorkGroupID.y * WARPS + warp()) * 4u;
    Weights w = load_weights(min(row, last), lane());
    Rows rows;
    load_norm(pc.address[NORM], rows);
    load_residual(state_before(LAYER), rows);
    meanwhile();
    norm_to_shared(rows);
    float scale = norm_scale();
    Chunk kept = chunk_get(min(lane(), CHUNKS - 1u));
    uint round_ = 0u;
    uvec2 best = NONE;
    // As many rounds for every warp: lanes meet in barriers where there are no shuffles.
    for (uint base = gl_WorkGroupID.y * WARPS * 4u; base < pc.p.vocabulary; base += step) {
        Weights ahead = load_weights(min(row + step, last), lane());
        vec4 sums = vec4(0);
        [[unroll]] for (uint round = 0; round < CHUNK_ROUNDS; round++) {
            uint chunk = lane() + 32u * round;
            if (round > 0u) w = load_weights(min(row, last), chunk);
            if (chunk < CHUNKS) {
                Chunk c = kept;
                if (round > 0u) c = chunk_get(chunk);
                [[unroll]] for (uint i = 0; i < 4u; i++)
                    sums[i] += chunk_dot(w.codes[i], w.scales_biases[i], c);
            }
        }
        float x = rounded(lane_sum4(sums.x, sums.y, sums.z, sums.w) * scale);
        if (lost != 0u) x = uintBitsToFloat(0x7fc00000u);
        uint mine = row + (lane() >> 3);
        if (mine < pc.p.vocabulary) {
            uvec2 key = uvec2(mine, ordered_key(floatBitsToUint(take_logit(mine, round_, x)), DTYPE_F32));
            if (better(key, best)) best = key;
        }
        w = ahead;
        row += step;
        round_++;
    }
    return best_of_8_lanes(best);
}
