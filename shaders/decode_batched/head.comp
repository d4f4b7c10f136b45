#version 460
// The end of a decoder for several sequences: logits = W y, y = x / rms(x) * w, and the largest of them per workgroup and sequence. What it
// writes and how is said in decode/head.comp; x * w in float16 lies there already, and sums are multiplied by 1 / rms(x).
//
// Each warp makes blocks of 16 logits by itself, without a barrier, the next steps of its weights on their way.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#define PUSH DecodePush
#include "batch.glsl"
#include "include/math.h"
#include "include/sample.h"

const uint STATE = 0u, CODES = 1u, AFFINE_PARTS = 2u, LOGITS = 3u, BEST = 4u, SCRATCH = 5u, RECENT_TOKENS = 6u, TAKEN = 7u;

layout(constant_id = 10) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 11) const uint RECENT = 0;        // tokens in `recent` of a sequence
layout(constant_id = 12) const uint PENALTY = 0;       // float bits
layout(constant_id = 13) const uint SCRATCH_WORDS = 0; // of a sequence
layout(constant_id = 14) const uint TAKES_ROW = 0u;    // 1: of the row alone that TAKEN says, which then is in all rows of A
const uint OUT_ROWS = TAKES_ROW != 0u ? 1u : SEQUENCES, OUT_BLOCKS = (OUT_ROWS + 7u) / 8u;

const bool WAITS = false;
#include "squares.glsl"

const uint STEPS = HIDDEN / 64u;
const uint AHEAD = 2u; // steps whose weights are on their way: more would take registers that two workgroups have

shared uvec2 bests[ROW_BLOCKS * 8u * WARPS]; // of each row and warp

struct Part {
    Step w[AHEAD];
};

void load_part(uint block, uint first, inout Part p) {
    [[unroll]] for (uint i = 0; i < AHEAD; i++)
        p.w[i] = load_step(pc.address[CODES], pc.address[AFFINE_PARTS], STEPS, block, first + i);
}

uint taken() { return min(U32s(pc.address[TAKEN]).v[0], SEQUENCES - 1u); }
uvec4 row_words(uint rows, uint step, uint half_) {
    uint at = TAKES_ROW != 0u ? half_at(HIDDEN, taken() / 8u, step, half_, taken() % 8u * 4u + lane_column())
                              : half_at(HIDDEN, rows, step, half_, lane());
    return Weights4(in_state(AT_BEFORE + at)).v[0];
}

SUM multiply_part(inout Part p, uint first, SUM sum) {
    [[unroll]] for (uint i = 0; i < AHEAD * 4u; i++) {
        uint step = first + i / 4u, m = i % 4u;
        if (STEPS % AHEAD != 0u && step >= STEPS) continue;
        uvec4 a = row_words(0u, step, m / 2u), b = row_words(OUT_BLOCKS - 1u, step, m / 2u);
        sum = multiply(m % 2u == 0u ? rows_of(a.xy, b.xy) : rows_of(a.zw, b.zw), weights(p.w[i / 4u], m), sum);
    }
    return sum;
}

float rounded(float x) {
    if (DTYPE_OUT == DTYPE_F32) return x;
    return DTYPE_OUT == DTYPE_F16 ? f16_value(f16_bits(x)) : bf16_value(bf16_bits(x));
}

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

// Which of a block's 16 logits of a sequence are penalised, as bits.
uint penalised(uint block, uint sequence) {
    uint bits = 0u;
    for (uint i = 0; i < RECENT; i++) {
        uint token = U32s(pc.address[RECENT_TOKENS]).v[sequence * RECENT + i];
        if (token / 16u == block) bits |= 1u << (token % 16u);
    }
    return bits;
}

// Keeps the larger of four logits of a sequence and the largest so far.
void finish(uint block, uint sequence, vec4 sums, inout uvec2 best) {
    if (sequence >= OUT_ROWS) return;
    uint bits = penalised(block, sequence);
    [[unroll]] for (uint e = 0; e < 4u; e++) {
        uint column = column_of(lane(), e), row = block * 16u + column;
        if (row >= pc.p.vocabulary) continue;
        float x = rounded(sums[e]);
        if ((bits >> column & 1u) != 0u) {
            float penalty = uintBitsToFloat(PENALTY);
            x = rounded(x < 0.0 ? x * penalty : m_divide(x, penalty));
        }
        if (pc.address[LOGITS] != 0ul) store_float(pc.address[LOGITS], sequence * pc.p.vocabulary + row, DTYPE_OUT, x);
        uvec2 key = uvec2(row, ordered_key(floatBitsToUint(x), DTYPE_F32));
        if (better(key, best)) best = key;
    }
}

void main() {
    find_bases((pc.p.capacity + thread()) >> 31);
    uint blocks = (pc.p.vocabulary + 15u) / 16u, all_warps = gl_NumWorkGroups.x * WARPS, block = gl_WorkGroupID.x * WARPS + warp();
    if (gl_WorkGroupID.x == 0u && pc.address[SCRATCH] != 0ul) {
        for (uint i = thread(); i < OUT_ROWS * SAMPLE_CLEARED; i += THREADS)
            U32s(pc.address[SCRATCH]).v[i / SAMPLE_CLEARED * SCRATCH_WORDS + i % SAMPLE_CLEARED] = 0u;
    }
    Part p, next;
    load_part(min(block, blocks - 1u), 0u, p);
    Squares s;
    read_squares(AT_BEFORE_SQUARES, s);
    share_squares(s);
    barrier();
    float scale[2];
    [[unroll]] for (uint rows = 0; rows < 2u; rows++)
        scale[rows] = scale_of(TAKES_ROW != 0u ? taken() : min(rows, ROW_BLOCKS - 1u) * 8u + lane_row());
    uvec2 best[2] = uvec2[2](uvec2(0xffffffffu, 0u), uvec2(0xffffffffu, 0u));
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * WARPS; first < blocks; first += all_warps, block += all_warps) {
#ifndef EMULATED
        if (block >= blocks) break; // lanes of a warp alone
#endif
        SUM sum = no_sum();
        [[unroll]] for (uint step = 0; step < STEPS; step += AHEAD) {
            bool last = step + AHEAD >= STEPS;
            load_part(min(last ? block + all_warps : block, blocks - 1u), last ? 0u : step + AHEAD, next);
            sum = multiply_part(p, step, sum);
            [[unroll]] for (uint i = 0; i < AHEAD; i++)
                p.w[i] = next.w[i];
        }
        if (block >= blocks) continue;
        finish(block, lane_row(), vec4(sum[0], sum[1], sum[2], sum[3]) * scale[0], best[0]);
        if (OUT_BLOCKS == 2u) finish(block, 8u + lane_row(), vec4(sum[4], sum[5], sum[6], sum[7]) * scale[1], best[1]);
    }
    [[unroll]] for (uint rows = 0; rows < OUT_BLOCKS; rows++) {
        [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
            uvec2 other = uvec2(subgroupShuffleXor(best[rows].x, m), subgroupShuffleXor(best[rows].y, m));
            if (better(other, best[rows])) best[rows] = other;
        }
        if (lane_column() == 0u) bests[(rows * 8u + lane_row()) * WARPS + warp()] = best[rows];
    }
    barrier();
    if (thread() >= OUT_ROWS) return;
    uvec2 most = bests[thread() * WARPS];
    for (uint i = 1; i < WARPS; i++)
        if (better(bests[thread() * WARPS + i], most)) most = bests[thread() * WARPS + i];
    U32x2s(pc.address[BEST]).v[thread() * gl_NumWorkGroups.x + gl_WorkGroupID.x] = most;
}
