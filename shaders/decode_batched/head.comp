#version 460
// The end of a decoder for several sequences: logits = W y, y = x / rms(x) * w in float16, and the largest of them per workgroup and
// sequence. What it writes and how is said in decode/head.comp.
//
// Each workgroup brings y of all sequences to shared memory, or reads what batch_norm left where it has no room for that; then each of its
// warps makes blocks of 16 logits by itself, without a barrier, the next steps of its weights on their way.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#define PUSH DecodePush
#include "batch.glsl"
#include "include/math.h"
#include "include/sample.h"

const uint STATE = 0u, NORM = 1u, CODES = 2u, AFFINE_PARTS = 3u, LOGITS = 4u, BEST = 5u, SCRATCH = 6u, RECENT_TOKENS = 7u;

layout(constant_id = 10) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 11) const uint RECENT = 0;        // tokens in `recent` of a sequence
layout(constant_id = 12) const uint PENALTY = 0;       // float bits
layout(constant_id = 13) const uint SCRATCH_WORDS = 0; // of a sequence
layout(constant_id = 14) const uint NORMED = 0;        // whether batch_norm ran

const uint STEPS = HIDDEN / 64u;
const uint AHEAD = 2u;                                                                // steps whose weights are on their way
const uint PAIRS = ROW_BLOCKS * HIDDEN / 32u, X_LOADS = (PAIRS + WARPS - 1u) / WARPS; // of blocks of 16 features

// y in the order of A, [8 rows][step][half][lane]; before that squares of each row and warp, behind that the best of them.
shared uvec4 fragments[NORMED != 0u ? ROW_BLOCKS * 8u * WARPS : ROW_BLOCKS * HIDDEN];

uvec4 fragment(uint at) { return NORMED != 0u ? Weights4(in_state(AT_NORMED)).v[at] : fragments[at]; }

void normalise() {
    vec4 x[2u * X_LOADS];
    float square[ROW_BLOCKS], scale[ROW_BLOCKS];
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++)
        square[rows] = 0.0;
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint at = min(warp() + i * WARPS, PAIRS - 1u), rows = at / (HIDDEN / 32u), block = at % (HIDDEN / 32u) * 2u;
        x[2u * i] = x_of(rows, block);
        x[2u * i + 1u] = x_of(rows, block + 1u);
        float both = warp() + i * WARPS < PAIRS ? dot(x[2u * i], x[2u * i]) + dot(x[2u * i + 1u], x[2u * i + 1u]) : 0.0;
        [[unroll]] for (uint r = 0; r < ROW_BLOCKS; r++)
            if (rows == r) square[r] += both;
    }
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
        float sum = four_sum(square[rows]);
        if (lane_column() == 0u) fragments[(rows * 8u + lane_row()) * WARPS + warp()] = uvec4(floatBitsToUint(sum));
    }
    barrier();
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
        float s[4] = float[4](0.0, 0.0, 0.0, 0.0);
        [[unroll]] for (uint i = 0; i < WARPS; i++)
            s[i & 3u] += uintBitsToFloat(fragments[(rows * 8u + lane_row()) * WARPS + i].x);
        scale[rows] = inversesqrt((s[0] + s[1] + (s[2] + s[3])) * (1.0 / float(HIDDEN)) + pc.p.eps);
    }
    barrier();
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint at = warp() + i * WARPS, rows = at / (HIDDEN / 32u), block = at % (HIDDEN / 32u) * 2u;
        if (at >= PAIRS) continue;
        float by = rows == 0u ? scale[0] : scale[ROW_BLOCKS - 1u];
        uvec2 first = half_four(x[2u * i] * by * norm_of(pc.address[NORM], block)),
              second = half_four(x[2u * i + 1u] * by * norm_of(pc.address[NORM], block + 1u));
        fragments[at * 32u + lane()] = uvec4(first, second);
    }
    barrier();
}

struct Part {
    Step w[AHEAD];
};

void load_part(uint block, uint first, inout Part p) {
    [[unroll]] for (uint i = 0; i < AHEAD; i++)
        p.w[i] = load_step(pc.address[CODES], pc.address[AFFINE_PARTS], STEPS, block, first + i);
}

SUM multiply_part(inout Part p, uint first, SUM sum) {
    [[unroll]] for (uint i = 0; i < AHEAD * 4u; i++) {
        uint step = first + i / 4u, m = i % 4u, at = (step * 2u + m / 2u) * 32u + lane();
        if (STEPS % AHEAD != 0u && step >= STEPS) continue;
        uvec4 a = fragment(at), b = fragment((ROW_BLOCKS - 1u) * HIDDEN + at);
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
    if (sequence >= SEQUENCES) return;
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
        for (uint i = thread(); i < SEQUENCES * SAMPLE_CLEARED; i += THREADS)
            U32s(pc.address[SCRATCH]).v[i / SAMPLE_CLEARED * SCRATCH_WORDS + i % SAMPLE_CLEARED] = 0u;
    }
    Part p, next;
    load_part(min(block, blocks - 1u), 0u, p);
    if (NORMED == 0u) normalise();
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
            p = next;
        }
        if (block >= blocks) continue;
        finish(block, lane_row(), vec4(sum[0], sum[1], sum[2], sum[3]), best[0]);
        if (ROW_BLOCKS == 2u) finish(block, 8u + lane_row(), vec4(sum[4], sum[5], sum[6], sum[7]), best[1]);
    }
    barrier(); // the fragments were read
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
        [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
            uvec2 other = uvec2(subgroupShuffleXor(best[rows].x, m), subgroupShuffleXor(best[rows].y, m));
            if (better(other, best[rows])) best[rows] = other;
        }
        if (lane_column() == 0u) fragments[(rows * 8u + lane_row()) * WARPS + warp()] = uvec4(best[rows], 0u, 0u);
    }
    barrier();
    if (thread() >= SEQUENCES) return;
    uvec2 most = fragments[thread() * WARPS].xy;
    for (uint i = 1; i < WARPS; i++)
        if (better(fragments[thread() * WARPS + i].xy, most)) most = fragments[thread() * WARPS + i].xy;
    U32x2s(pc.address[BEST]).v[thread() * gl_NumWorkGroups.x + gl_WorkGroupID.x] = most;
}
