#version 460
// The end of a decoder for eight sequences: logits = W (x / rms(x) * w), and the largest of them per workgroup and sequence.
// What it writes and how is said in decode_head.comp.
//
// Workgroup (every so many blocks of 16 rows) and (eight sequences). All warps multiply, four of them in turns finish a row of each
// task while the others go on: a task is four consecutive rows.

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#endif
#define BUFFERS 8
const uint STATE = 0u, NORM = 1u, HEAD = 2u, AFFINE = 3u, LOGITS = 4u, BEST = 5u, SCRATCH = 6u, RECENT_TOKENS = 7u;
#define STAGES 2u
#define POOL STAGES * PART_WORDS
#include "batch.glsl"
#include "batch_norm.glsl"
#include "sample.h"

layout(constant_id = 14) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 15) const uint RECENT = 0;  // tokens in `recent` of a sequence
layout(constant_id = 16) const uint PENALTY = 0; // float bits
layout(constant_id = 17) const uint SCRATCH_WORDS = 0; // of a sequence

const uint BLOCK_ROWS = 16u;
const uint AHEAD = 4u; // blocks whose weights are on their way
const uint MOST_ROUNDS = 128u; // that `penalised` has room for: 262,144 rows take no more from 128 workgroups on

Weights load_block(uint base) {
    Weights w;
    uint last = pc.p.vocabulary - 1u, row = min(base + 4u * (lane() & 3u), last & ~3u);
#ifdef MATRICES
    load_fragments(pc.address[HEAD] + uint64_t(min(base, last) / BLOCK_ROWS) * 8192ul, w);
#else
    [[unroll]] for (uint r = 0; r < 4u; r++) load_row(pc.address[HEAD] + uint64_t(min(row + r, last)) * (CHUNKS * 16u), r, w);
#endif
    [[unroll]] for (uint j = 0; j < SLOTS; j++) w.affine[j] = Weights4(pc.address[AFFINE]).v[row / 4u * GROUPS + group_of(j)];
    return w;
}

shared uvec2 warp_best[NORM_WARPS * ROWS];
shared uint penalised[RECENT == 0u ? 1u : MOST_ROUNDS * ROWS]; // a bit for each row of a round

// Marks this workgroup's rows among the recent tokens; ends before a barrier.
void mark_recent() {
    for (uint i = thread(); i < MOST_ROUNDS * ROWS; i += THREADS) penalised[i] = 0u;
    barrier();
    for (uint i = thread(); i < RECENT * ROWS; i += THREADS) {
        uint which = i / RECENT, of = min(group_first + which, SEQUENCES - 1u);
        uint row = U32s(pc.address[RECENT_TOKENS]).v[of * RECENT + i % RECENT], block = row / BLOCK_ROWS, round = block / gl_NumWorkGroups.x;
        if (block % gl_NumWorkGroups.x == gl_WorkGroupID.x && round < MOST_ROUNDS) atomicOr(penalised[round * ROWS + which], 1u << (row % BLOCK_ROWS));
    }
}

float rounded(float x) { return rounded_as(x, DTYPE_OUT); }

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

// Keeps the larger of a logit of the lane's sequence and the largest so far.
void finish(uint row, uint round, float logit, inout uvec2 best) {
    if (row >= pc.p.vocabulary) return;
    float x = rounded(logit);
    if (RECENT > 0u && ((penalised[round * ROWS + (lane() >> 2)] >> (row % BLOCK_ROWS)) & 1u) != 0u) {
        float penalty = uintBitsToFloat(PENALTY);
        x = rounded(x < 0.0 ? x * penalty : m_divide(x, penalty));
    }
    if (pc.address[LOGITS] != 0ul && sequence_of_lane() < SEQUENCES) store_float(pc.address[LOGITS], sequence * pc.p.vocabulary + row, DTYPE_OUT, x);
    uvec2 key = uvec2(row, ordered_key(floatBitsToUint(x), DTYPE_F32));
    if (better(key, best)) best = key;
}

void main() {
    take_group(gl_WorkGroupID.y);
    if (RECENT > 0u) mark_recent();
    if (gl_WorkGroupID.x == 0u && pc.address[SCRATCH] != 0ul) {
        uint last = min(group_first + ROWS, SEQUENCES);
        for (uint s = group_first; s < last; s++)
            for (uint i = thread(); i < SAMPLE_CLEARED; i += THREADS) U32s(pc.address[SCRATCH]).v[s * SCRATCH_WORDS + i] = 0u;
    }
    uint start = gl_WorkGroupID.x * BLOCK_ROWS, step = gl_NumWorkGroups.x * BLOCK_ROWS, round = 0u;
    Weights w[AHEAD];
    [[unroll]] for (uint n = 0; n < AHEAD; n++) w[n] = load_block(start + n * step);
    normalise(load_norm(pc.address[NORM]));
    uvec2 best = uvec2(0xffffffffu, 0u);
    float scale = 0.0;
    [[dont_unroll]] for (uint first = start; first < pc.p.vocabulary; first += AHEAD * step) {
        [[unroll]] for (uint n = 0; n < AHEAD; n++) {
            uint base = first + n * step;
            keep_part(round % STAGES, warp_sums(w[n]));
            w[n] = load_block(base + AHEAD * step);
            barrier();
            if (round == 0u) scale = norm_scale();
            uint r = (warp() - 4u * round) % NORM_WARPS;
            if (r < 4u) finish(base + 4u * (lane() & 3u) + r, round, sum_of_warps(round % STAGES, r) * scale, best);
            round++;
        }
    }
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        uvec2 other = uvec2(lane_xor(best.x, m), lane_xor(best.y, m));
        if (better(other, best)) best = other;
    }
    if ((lane() & 3u) == 0u) warp_best[warp() * ROWS + (lane() >> 2)] = best;
    barrier();
    if (thread() >= ROWS || group_first + thread() >= SEQUENCES) return;
    best = warp_best[thread()];
    [[unroll]] for (uint i = 1; i < NORM_WARPS; i++) if (better(warp_best[i * ROWS + thread()], best)) best = warp_best[i * ROWS + thread()];
    U32x2s(pc.address[BEST]).v[(group_first + thread()) * gl_NumWorkGroups.x + gl_WorkGroupID.x] = best;
}
