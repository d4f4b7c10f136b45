#version 460
// The end of a decoder: logits = W (x / rms(x) * w), and the largest of them per workgroup.
//
// 32 lanes make 4 rows at a time, every so many; a row beyond the vocabulary is not kept. Scales and biases come packed,
// [row / 4][group][row % 4], padded to whole fours. `logits` may be absent. best[workgroup] is (index, ordered key); of equal
// logits the lowest index wins. Logits are rounded as they are stored, and those of `recent` tokens penalised: negative ones
// times PENALTY, others divided by it. The scratch memory of the sampling kernels, where there are any, is cleared here.

// The grid is (sequences, workgroups): those that read the same weights for different sequences start together.

#define BUFFERS 8
#define SUMS_ANY
#define SEQUENCE gl_WorkGroupID.x
#include "decode.glsl"
#include "decode_rows.glsl"
#include "sample.h"

layout(constant_id = 13) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 14) const uint RECENT = 0;  // tokens in `recent`
layout(constant_id = 15) const uint PENALTY = 0; // float bits
layout(constant_id = 16) const uint SCRATCH_WORDS = 0; // of a sequence

const uint STATE = 0u, NORM = 1u, HEAD = 2u, AFFINE = 3u, LOGITS = 4u, BEST = 5u, SCRATCH = 6u, RECENT_TOKENS = 7u;
const uint MOST_ROUNDS = 64u; // that `penalised` has room for: 262,144 rows take no more from 128 workgroups on

shared uvec2 warp_best[WARPS];
shared uint penalised[RECENT == 0u ? 1u : MOST_ROUNDS]; // a bit for each row of a round of this workgroup

struct Weights { uvec4 codes[4]; uvec4 affine; };

Weights load_weights(uint row, uint chunk) {
    uint at = min(chunk, CHUNKS - 1u);
    Weights w;
    [[unroll]] for (uint r = 0; r < 4u; r++) w.codes[r] = Weights4(pc.address[HEAD]).v[min(row + r, pc.p.vocabulary - 1u) * CHUNKS + at];
    w.affine = Weights4(pc.address[AFFINE]).v[row / 4u * GROUPS + at * 32u / GROUP];
    return w;
}

// Marks this workgroup's rows among the recent tokens; ends before a barrier.
void mark_recent() {
    if (thread() < MOST_ROUNDS) penalised[thread()] = 0u;
    barrier();
    for (uint i = thread(); i < RECENT; i += THREADS) {
        uint row = U32s(pc.address[RECENT_TOKENS]).v[SEQUENCE * RECENT + i], block = row / (WARPS * 4u), round = block / gl_NumWorkGroups.y;
        if (block % gl_NumWorkGroups.y == gl_WorkGroupID.y && round < MOST_ROUNDS) atomicOr(penalised[round], 1u << (row % (WARPS * 4u)));
    }
}

float rounded(float x) { return rounded_as(x, DTYPE_OUT); }

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

void main() {
    uint last = (pc.p.vocabulary - 1u) & ~3u, step = gl_NumWorkGroups.y * WARPS * 4u;
    uint row = (gl_WorkGroupID.y * WARPS + warp()) * 4u;
    Weights w = load_weights(min(row, last), lane());
    Rows rows;
    load_norm(pc.address[NORM], rows);
    load_residual(state_before(LAYER), rows);
    if (RECENT > 0u) mark_recent();
    if (gl_WorkGroupID.y == 0u && pc.address[SCRATCH] != 0ul)
        for (uint i = thread(); i < SAMPLE_CLEARED; i += THREADS) U32s(pc.address[SCRATCH]).v[SEQUENCE * SCRATCH_WORDS + i] = 0u;
    norm_to_shared(rows);
    float scale = norm_scale();
    Chunk kept = chunk_get(min(lane(), CHUNKS - 1u));
    uint round_ = 0u;
    uvec2 best = uvec2(0xffffffffu, 0u);
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
                [[unroll]] for (uint i = 0; i < 4u; i++) sums[i] += chunk_dot(w.codes[i], w.affine[i], c);
            }
        }
        float x = rounded(lane_sum4(sums.x, sums.y, sums.z, sums.w) * scale);
        uint mine = row + (lane() >> 3);
        if (RECENT > 0u && ((penalised[round_] >> (mine % (WARPS * 4u))) & 1u) != 0u) {
            float penalty = uintBitsToFloat(PENALTY);
            x = rounded(x < 0.0 ? x * penalty : m_divide(x, penalty));
        }
        if (mine < pc.p.vocabulary) {
            if (pc.address[LOGITS] != 0ul && (lane() & 7u) == 0u) store_float(pc.address[LOGITS], SEQUENCE * pc.p.vocabulary + mine, DTYPE_OUT, x);
            uvec2 key = uvec2(mine, ordered_key(floatBitsToUint(x), DTYPE_F32));
            if (better(key, best)) best = key;
        }
        w = ahead;
        row += step;
        round_++;
    }
    [[unroll]] for (uint m = 8u; m < 32u; m <<= 1) {
        uvec2 other = uvec2(lane_xor(best.x, m), lane_xor(best.y, m));
        if (better(other, best)) best = other;
    }
    if (lane() == 0u) warp_best[warp()] = best;
    barrier();
    if (thread() == 0u) {
        [[unroll]] for (uint i = 1; i < WARPS; i++) if (better(warp_best[i], best)) best = warp_best[i];
        U32x2s(pc.address[BEST]).v[SEQUENCE * gl_NumWorkGroups.y + gl_WorkGroupID.y] = best;
    }
}
