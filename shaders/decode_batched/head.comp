#version 460
// The end of a decoder for several sequences: logits = W y, y = x / rms(x) * w, and the largest of them per workgroup and sequence.
// decode/head.comp describes its output; x * w in float16 is there already, and sums are multiplied by 1 / rms(x).
//
// A workgroup makes neighbouring blocks of 16 logits. Each of its warps makes an equal part of their steps, wherever
// blocks end. Rounds of whole blocks would leave most warps without work in the last one. A warp's part of a block
// that another one began it leaves in shared memory.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#define PUSH DecodePush
#include "batch.glsl"
#include "include/math/math.h"
#include "include/sample.h"

const uint STATE = 0u, CODES = 1u, AFFINE_PARTS = 2u, LOGITS = 3u, BEST = 4u, SCRATCH = 5u, RECENT_TOKENS = 6u, TAKEN = 7u;

layout(constant_id = 11) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 12) const uint RECENT = 0;        // tokens in `recent` of a sequence
layout(constant_id = 13) const uint PENALTY = 0;       // float bits
layout(constant_id = 14) const uint SCRATCH_WORDS = 0; // of a sequence
layout(constant_id = 15) const uint TAKES_ROW = 0u;    // 1: of the row alone that TAKEN says, in the place of each
const uint OUT_ROWS = TAKES_ROW != 0u ? 1u : SEQUENCES, OUT_BLOCKS = (OUT_ROWS + 7u) / 8u;

const bool WAITS = false;
#include "squares.glsl"

const uint STEPS = HIDDEN / 64u;
// Steps whose weights are on their way: more would take registers that two workgroups have.
const uint AHEAD = BITS != 4u ? 1u : STEPS % 2u == 0u ? 2u : 1u;

shared uvec2 bests[OUT_BLOCKS * 8u * WARPS * 8u]; // of each row, warp and column of 8
shared vec4 parts[WARPS * OUT_BLOCKS * 32u];      // the parts of warps of a block that began before
shared float scales[OUT_BLOCKS * 8u];

struct Parts {
    uvec4 codes[AHEAD * CODE_LOADS];
    uvec2 scales_biases[AHEAD * STEP_GROUPS];
};
struct Sums {
    BLOCK_SUM s[OUT_BLOCKS];
};

// A step, counted from that of the first block on.
void load_part(uint step, uint slot, inout Parts p) {
    if (BITS == 16u) {
        [[unroll]] for (uint load = 0; load < CODE_LOADS; load++) {
            uint row = min(step / STEPS * 16u + lane_row() + load / 2u * 8u, pc.p.vocabulary - 1u);
            p.codes[slot * CODE_LOADS + load] = load_dense(pc.address[CODES], STEPS, step % STEPS, row, load);
        }
    } else {
        [[unroll]] for (uint load = 0; load < CODE_LOADS; load++)
            p.codes[slot * CODE_LOADS + load] = load_codes(pc.address[CODES], STEPS, 0u, step, load);
    }
    if (BITS != 16u) [[unroll]]
        for (uint group = 0; group < STEP_GROUPS; group++)
            p.scales_biases[slot * STEP_GROUPS + group] = load_scales_biases(pc.address[AFFINE_PARTS], STEPS, 0u, step, group);
}

// Words of 8 rows, or of the one that is taken in the place of each.
uint taken() { return min(U32s(pc.address[TAKEN]).v[0], SEQUENCES - 1u); }
uvec4 row_words(uint rows, uint step, uint half_) {
    uint at = TAKES_ROW != 0u ? half_at(HIDDEN, taken() / 8u, step, half_, taken() % 8u * 4u + lane_column())
                              : half_at(HIDDEN, rows, step, half_, lane());
    return Weights4(in_state(AT_BEFORE + at)).v[0];
}

// Adds step `step` of a block where `has` says so.
void multiply_part(inout Parts p, uint step, uint slot, bool has, inout Sums sums) {
    uvec4 a[2u * OUT_BLOCKS];
    [[unroll]] for (uint i = 0; i < 2u * OUT_BLOCKS; i++) {
        a[i] = uvec4(0);
        if (has) a[i] = row_words(i / 2u, step, i % 2u);
    }
    [[unroll]] for (uint m = 0; m < 4u; m++) {
        uvec4 w = weights(p.codes[slot * CODE_LOADS + load_of(m)], p.codes[slot * CODE_LOADS + other_load_of(m)], m,
                          p.scales_biases[slot * STEP_GROUPS + m / 2u % STEP_GROUPS]);
        [[unroll]] for (uint rows = 0; rows < OUT_BLOCKS; rows++) {
            uvec4 words = a[rows * 2u + m / 2u];
            sums.s[rows] = multiply_block(w, m % 2u == 0u ? words.xy : words.zw, sums.s[rows]);
        }
    }
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

// Keeps the larger of two logits of a sequence and the largest so far.
void keep(uint block, uint sequence, vec2 sums, inout uvec2 best) {
    if (sequence >= OUT_ROWS) return;
    uint bits = penalised(block, sequence);
    [[unroll]] for (uint e = 0; e < 2u; e++) {
        uint column = lane_row() + 8u * e, row = block * 16u + column;
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

struct Best {
    vec2 scale[OUT_BLOCKS]; // of rows 2c and 2c + 1 of each 8
    uvec2 best[OUT_BLOCKS * 2u];
};

void finish(uint block, uint rows, vec4 sum, inout Best r) {
    uint sequence = rows * 8u + lane_column() * 2u;
    keep(block, sequence, sum.xz * r.scale[rows].x, r.best[rows * 2u]);
    keep(block, sequence + 1u, sum.yw * r.scale[rows].y, r.best[rows * 2u + 1u]);
}

void main() {
    find_bases((pc.p.capacity + thread()) >> 31);
    // Steps of this workgroup, counted from the first block on, and those of a warp of it.
    uint blocks = (pc.p.vocabulary + 15u) / 16u, begin = gl_WorkGroupID.x * blocks / gl_NumWorkGroups.x * STEPS,
         end = (gl_WorkGroupID.x + 1u) * blocks / gl_NumWorkGroups.x * STEPS,
         share = (end - begin + AHEAD * WARPS - 1u) / (AHEAD * WARPS) * AHEAD;
    uint first = min(begin + warp() * share, end), last = min(first + share, end);
    if (gl_WorkGroupID.x == 0u && pc.address[SCRATCH] != 0ul) {
        for (uint i = thread(); i < OUT_ROWS * SAMPLE_CLEARED; i += THREADS)
            U32s(pc.address[SCRATCH]).v[i / SAMPLE_CLEARED * SCRATCH_WORDS + i % SAMPLE_CLEARED] = 0u;
    }
    Parts p;
    [[unroll]] for (uint slot = 0; slot < AHEAD; slot++)
        load_part(min(first + slot, end - 1u), slot, p);
    Squares s;
    read_squares(AT_BEFORE_SQUARES, s);
    share_squares(s);
    barrier();
    float scale_of_row = scale_of(TAKES_ROW != 0u ? taken() : min(thread() / 4u, OUT_BLOCKS * 8u - 1u));
    if (thread() % 4u == 0u && thread() / 4u < OUT_BLOCKS * 8u) scales[thread() / 4u] = scale_of_row;
    barrier();
    Best r;
    Sums sums;
    [[unroll]] for (uint rows = 0; rows < OUT_BLOCKS; rows++) {
        uint row = rows * 8u + lane_column() * 2u;
        r.scale[rows] = vec2(scales[row], scales[row + 1u]);
        r.best[rows * 2u] = r.best[rows * 2u + 1u] = uvec2(0xffffffffu, 0u);
        sums.s[rows] = no_block_sum();
    }
    bool began = first % STEPS == 0u; // the block that it is at
    [[dont_unroll]] for (uint done = 0; done < share; done += AHEAD) {
        uint at = first + done;
#ifndef EMULATED
        if (at >= last) break; // lanes of a warp alone
#endif
        [[unroll]] for (uint slot = 0; slot < AHEAD; slot++) {
            multiply_part(p, at % STEPS + slot, slot, at < last, sums);
            load_part(min(at + AHEAD + slot, end - 1u), slot, p);
        }
        bool ends = (at + AHEAD) % STEPS == 0u;
        if (at < last && (ends || (!began && at + AHEAD >= last))) {
            [[unroll]] for (uint rows = 0; rows < OUT_BLOCKS; rows++) {
                if (began) finish(at / STEPS, rows, four_of(sums.s[rows]), r);
                else parts[(warp() * OUT_BLOCKS + rows) * 32u + lane()] = four_of(sums.s[rows]);
                sums.s[rows] = no_block_sum();
            }
            began = began || ends;
        }
    }
    barrier();
    if (began && first < last && last % STEPS != 0u) {
        uint block = last / STEPS;
        [[unroll]] for (uint rows = 0; rows < OUT_BLOCKS; rows++) {
            vec4 sum = four_of(sums.s[rows]);
            for (uint other = warp() + 1u; begin + other * share < (block + 1u) * STEPS; other++)
                sum += parts[(other * OUT_BLOCKS + rows) * 32u + lane()];
            finish(block, rows, sum, r);
        }
    }
    [[unroll]] for (uint i = 0; i < OUT_BLOCKS * 2u; i++)
        bests[(i / 2u * 8u + lane_column() * 2u + i % 2u) * (WARPS * 8u) + warp() * 8u + lane_row()] = r.best[i];
    barrier();
    uint sequence = min(thread() / 4u, OUT_ROWS - 1u); // of four neighbours
    uvec2 most = bests[sequence * (WARPS * 8u) + (thread() & 3u)];
    [[dont_unroll]] for (uint i = thread() & 3u; i < WARPS * 8u; i += 4u) {
        uvec2 other = bests[sequence * (WARPS * 8u) + i];
        if (better(other, most)) most = other;
    }
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        uvec2 other = uvec2(subgroupShuffleXor(most.x, m), subgroupShuffleXor(most.y, m));
        if (better(other, most)) most = other;
    }
    if (thread() % 4u == 0u && thread() / 4u < OUT_ROWS)
        U32x2s(pc.address[BEST]).v[sequence * gl_NumWorkGroups.x + gl_WorkGroupID.x] = most;
}
