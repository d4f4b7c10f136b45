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
#include "batch.glsl"
#include "sample.h"

layout(constant_id = 14) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 15) const uint RECENT = 0;  // tokens in `recent` of a sequence
layout(constant_id = 16) const uint PENALTY = 0; // float bits
layout(constant_id = 17) const uint SCRATCH_WORDS = 0; // of a sequence

const uint STATE = 0u, NORM = 1u, HEAD = 2u, AFFINE = 3u, LOGITS = 4u, BEST = 5u, SCRATCH = 6u, RECENT_TOKENS = 7u;
const uint BLOCK_ROWS = 16u;
const uint MOST_ROUNDS = 128u; // that `penalised` has room for: 262,144 rows take no more from 128 workgroups on
#define BLOCKS 1u

uint base; // first row of this round

uint row_of_task(uint task) { return min(base + 4u * task, (pc.p.vocabulary - 1u) & ~3u); }
#ifdef MATRICES
uint64_t fragments_of(uint block) { return pc.address[HEAD] + uint64_t(min(base, pc.p.vocabulary - 1u) / BLOCK_ROWS) * 8192ul; }
#else
uint64_t weight_row(uint task, uint r) {
    return pc.address[HEAD] + uint64_t(min(row_of_task(task) + r, pc.p.vocabulary - 1u)) * (CHUNKS * 16u);
}
#endif
uvec4 affine_of(uint task, uint chunk) { return Weights4(pc.address[AFFINE]).v[row_of_task(task) / 4u * GROUPS + chunk * 32u / GROUP]; }

#define STAGES 2
#include "batch_norm.glsl"

shared uvec2 warp_best[NORM_WARPS * ROWS];
shared uint penalised[RECENT == 0u ? 1u : MOST_ROUNDS * ROWS]; // a bit for each row of a round

// Marks this workgroup's rows among the recent tokens; ends before a barrier.
void mark_recent() {
    for (uint i = thread(); i < MOST_ROUNDS * ROWS; i += THREADS) penalised[i] = 0u;
    barrier();
    for (uint i = thread(); i < RECENT * ROWS; i += THREADS) {
        uint which = i / RECENT, of = min(first_sequence() + which, SEQUENCES - 1u);
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
    take_sequence();
    if (RECENT > 0u) mark_recent();
    if (gl_WorkGroupID.x == 0u && pc.address[SCRATCH] != 0ul) {
        uint last = min(first_sequence() + ROWS, SEQUENCES);
        for (uint s = first_sequence(); s < last; s++)
            for (uint i = thread(); i < SAMPLE_CLEARED; i += THREADS) U32s(pc.address[SCRATCH]).v[s * SCRATCH_WORDS + i] = 0u;
    }
    base = gl_WorkGroupID.x * BLOCK_ROWS;
    Weights w = load_weights(0u);
    normalise(pc.address[NORM]);
    uvec2 best = uvec2(0xffffffffu, 0u);
    uint round = 0u, step = gl_NumWorkGroups.x * BLOCK_ROWS;
    float scale = 0.0;
    [[dont_unroll]] for (uint first = base; first < pc.p.vocabulary; first += step) {
        base = first + step;
        Weights ahead = load_weights(0u);
        uint stage = round % STAGES * NORM_WARPS * 32u;
        partial[stage + warp() * 32u + lane()] = warp_sums(w);
        w = ahead;
        barrier();
        if (round == 0u) scale = norm_scale();
        uint r = (warp() - 4u * round) % NORM_WARPS;
        if (r < 4u) finish(first + 4u * (lane() & 3u) + r, round, sum_of_warps(stage + lane(), r) * scale, best);
        round++;
    }
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        uvec2 other = uvec2(lane_xor(best.x, m), lane_xor(best.y, m));
        if (better(other, best)) best = other;
    }
    if ((lane() & 3u) == 0u) warp_best[warp() * ROWS + (lane() >> 2)] = best;
    barrier();
    if (thread() >= ROWS || first_sequence() + thread() >= SEQUENCES) return;
    best = warp_best[thread()];
    [[unroll]] for (uint i = 1; i < NORM_WARPS; i++) if (better(warp_best[i * ROWS + thread()], best)) best = warp_best[i * ROWS + thread()];
    U32x2s(pc.address[BEST]).v[(first_sequence() + thread()) * gl_NumWorkGroups.x + gl_WorkGroupID.x] = best;
}
