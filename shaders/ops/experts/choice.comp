#version 460
// expert_choice: out[row] = the numbers of the CHOSEN experts of the highest scores, as floats, and then their weights.
//
// Scores are the sums of SPLITS parts (SPLITS, rows, experts), as a product with a split depth leaves them. What is in added (experts,)
// counts too, if that is bound. A workgroup has a row. Each expert counts how many come before it: those of higher scores, and of equal ones
// those of lower numbers. The count is its place, so all places are taken whatever the scores are; NaN comes last. Weights are a
// softmax of all scores or of the chosen ones, or sigmoids. Groups of experts may be closed: their scores count as 0.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 5
#define PUSH ExpertChoicePush
#include "include/common.glsl"
#include "include/math/math.h"
#include "include/score_key.glsl"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_SCALE = DTYPE_F32;
layout(constant_id = 4) const uint AMONG = EXPERTS_ALL;
layout(constant_id = 5) const uint HAS_BIAS = 0;
layout(constant_id = 6) const uint HAS_SCALE = 0;
layout(constant_id = 7) const uint SPLITS = 1;
layout(constant_id = 8) const uint DTYPE_ADDED = DTYPE_F32;
layout(constant_id = 9) const uint EXPERTS = 64; // constant, so that a workgroup takes no more shared memory than it needs

const uint QUADS = (EXPERTS + 3) / 4;
shared uvec4 keys[QUADS]; // in the order of scores
shared uint places[EXPERTS];
shared float scores[EXPERTS]; // and then weights
shared float group_sums[MAX_EXPERT_GROUPS];
shared bool closed[MAX_EXPERT_GROUPS];

float biased(uint expert) {
    float x = scores[expert];
    return HAS_BIAS == 1 ? x + load_float(pc.address[1], expert, DTYPE_BIAS) : x;
}

// Closes the groups whose two best experts have the lowest sums, of equal ones those of lower numbers.
void close_groups() {
    uint size = EXPERTS / pc.p.groups;
    for (uint group = gl_LocalInvocationID.x; group < pc.p.groups; group += THREADS) {
        float first = biased(group * size), second = biased(group * size + 1u);
        if (key_of(second) > key_of(first)) {
            float other = first;
            first = second, second = other;
        }
        for (uint i = 2; i < size; i++) {
            float x = biased(group * size + i);
            if (key_of(x) > key_of(first)) second = first, first = x;
            else if (key_of(x) > key_of(second)) second = x;
        }
        group_sums[group] = first + second;
    }
    barrier();
    for (uint group = gl_LocalInvocationID.x; group < pc.p.groups; group += THREADS) {
        uint key = key_of(group_sums[group]), before = 0;
        for (uint i = 0; i < pc.p.groups; i++) {
            uint other = key_of(group_sums[i]);
            if (other < key || (other == key && i < group)) before++;
        }
        closed[group] = before < pc.p.closed;
    }
    barrier();
}

// How many come before an expert. No key is so high that there is none above it.
uint places_before(uint expert) {
    uint own = expert / 4u, key = keys[own][expert % 4u], place = 0;
    uint quads = QUADS + (pc.p.rows >> 31); // + 0: compilers unroll loops of a length that they know
    for (uint quad = 0; quad < quads; quad++) {
        uvec4 others = keys[quad];
        uint least = quad < own ? key : key + 1u;
        [[unroll]] for (uint i = 0; i < 4u; i++)
            place += uint(others[i] >= least);
    }
    [[unroll]] for (uint i = 0; i < 3u; i++)
        place += uint(i < expert % 4u && keys[own][i] == key);
    return place;
}

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    float most = uintBitsToFloat(0xff800000u);
    for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += THREADS) {
        float x = load_float(pc.address[0], row * EXPERTS + e, DTYPE);
        [[unroll]] for (uint split = 1; split < SPLITS; split++)
            x += load_float(pc.address[0], (split * pc.p.rows + row) * EXPERTS + e, DTYPE);
        if (pc.address[4] != 0ul) x += load_float(pc.address[4], e, DTYPE_ADDED);
        scores[e] = AMONG == EXPERTS_SIGMOID ? m_sigmoid(x) : x;
        most = max(most, x);
    }
    barrier();
    if (pc.p.closed > 0u) close_groups();
    for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += THREADS) {
        bool open = pc.p.closed == 0u || !closed[e / (EXPERTS / pc.p.groups)];
        keys[e / 4u][e % 4u] = key_of(open ? biased(e) : 0.0);
    }
    // Those of no expert are below all, as NaN is.
    uint pad = EXPERTS + gl_LocalInvocationID.x;
    if (pad < 4u * QUADS) keys[pad / 4u][pad % 4u] = 0u;
    if (AMONG != EXPERTS_SIGMOID) most = workgroup_max(most);
    barrier();

    float sum = 0.0;
    for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += THREADS) {
        uint place = places_before(e);
        places[e] = place;
        if (AMONG != EXPERTS_SIGMOID) scores[e] = exp(scores[e] - most);
        if (place < pc.p.chosen || AMONG == EXPERTS_ALL) sum += scores[e];
    }
    sum = workgroup_sum(sum);
    float divisor = AMONG != EXPERTS_SIGMOID ? sum : pc.p.normalized == 1u ? sum + pc.p.sum_eps : 1.0;
    uint base = row * 2u * pc.p.chosen;
    for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += THREADS) {
        if (places[e] >= pc.p.chosen) continue;
        float weight = scores[e] / divisor * pc.p.factor;
        if (HAS_SCALE == 1) weight *= load_float(pc.address[2], e, DTYPE_SCALE);
        store_float(pc.address[3], base + places[e], DTYPE_F32, float(e));
        store_float(pc.address[3], base + pc.p.chosen + places[e], DTYPE_F32, weight);
    }
}
