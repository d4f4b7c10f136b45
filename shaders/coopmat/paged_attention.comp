#version 460
// coopmat_paged_attention: paged_attention (see ops/attention/paged_attention.comp) in 16x16x16 matrices. Its buffers, parts and results are the
// same. Queries, keys, values and weights are float16, sums float32. A bfloat16 number that is larger than float16 has becomes the largest one.
//
// A workgroup serves the GROUP query heads of a key head, at most 8, over a part of a sequence's positions. They are rows of matrices, so keys
// and values are read and dequantized once for all of them. A warp takes every WARPS-th block of 16 positions by itself: scores, a running softmax,
// and values. Those of its next block are on their way meanwhile. The warps meet at the end.
//
// HEAD_DIM is a multiple of 32, at most 128. THREADS / 2 positions are a multiple of PAGE or a part of it. Workgroups: (KV_HEADS, parts, batch).

#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifndef EMULATED
#include "coopmat/coopmat.glsl"
#endif
#define BUFFERS 7
#define PUSH PagedAttentionPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEAD_DIM = 128;
layout(constant_id = 2) const uint DTYPE_Q = DTYPE_F16;
layout(constant_id = 3) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 5) const uint GROUP = 1;
layout(constant_id = 6) const uint KV_HEADS = 1;
layout(constant_id = 7) const uint PAGE = 64;
layout(constant_id = 8) const uint SPLITS = 1;
layout(constant_id = 9) const uint WINDOW = 0;
layout(constant_id = 10) const uint SHARING = 1; // of paged_attention

#include "include/vec4.glsl"
#include "include/vector.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Weights4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Weights2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Weights1 { uint v[]; };

const uint WARPS = THREADS / 32u;
uint thread() { return gl_LocalInvocationID.x; }
uint lane() { return thread() & 31u; }
uint warp() { return thread() >> 5; }
#ifdef EMULATED
#include "coopmat/emulated.glsl"
#else
#include "coopmat/half_codes.glsl"
uint lane_row() { return lane() >> 2; }
uint lane_column() { return lane() & 3u; }
#endif

float four_sum(float x) {
    x += subgroupShuffleXor(x, 1u);
    return x + subgroupShuffleXor(x, 2u);
}
float four_max(float x) {
    x = max(x, subgroupShuffleXor(x, 1u));
    return max(x, subgroupShuffleXor(x, 2u));
}
vec2 pair_value(uint w, uint dtype) {
    return dtype == DTYPE_F16 ? unpackHalf2x16(w) : vec2(uintBitsToFloat(w << 16), uintBitsToFloat(w & 0xffff0000u));
}
#include "coopmat/half_pair.glsl"
uvec2 half_four(vec4 x) { return uvec2(half_pair(x.xy), half_pair(x.zw)); }

#define PAGE_TABLE pc.address[3]
#include "include/kv_address.glsl"
#include "include/kv_codes.glsl"
#include "coopmat/products.glsl"

const uint FOURS = HEAD_DIM / 4u, EIGHTS = HEAD_DIM / 8u, VALUE_PARTS = (EIGHTS + 7u) / 8u, SHARE_EIGHTS = VALUE_PARTS * 8u;
const uint HEADS = KV_HEADS * GROUP, BLOCK_ROUND = WARPS * 16u;

uint sequence, key_head;
const uint first_eight = 0u;
uvec2 place_of(uint page, uint position) { return kv_place(page, sequence, position); }
uint64_t cached_key(uint four, uvec2 place) { return key_address(pc.address[1], place, key_head, four); }
uint64_t cached_value(uint eight, uvec2 place) { return value_address(pc.address[2], place, key_head, eight); }
uint page_of(uint position, uint last) { return kv_page(sequence, min(position, last)); }

#include "coopmat/kv_blocks.glsl"

// Where the warps meet: pairs of neighbouring features, as values_of() orders them.
const uint PAIRS = VALUE_STEPS * 8u;
shared uvec2 queries[GROUP * FOURS];
shared vec2 outputs[WARPS * GROUP * PAIRS];
shared float warp_most[GROUP * WARPS], warp_mass[GROUP * WARPS];

vec4 scores(inout Keys k) {
    SUM sums[2]; // two, since products that add to the same wait for each other
    sums[0] = no_sum();
    sums[1] = no_sum();
    [[unroll]] for (uint m = 0; m < KEY_STEPS; m++) {
        uvec2 q = lane_row() < GROUP ? queries[min(lane_row(), GROUP - 1u) * FOURS + 4u * m + lane_column()] : uvec2(0);
        sums[m % 2u] = multiply(uvec4(q, 0u, 0u), uvec4(halves(k.first[m]), halves(k.second[m])), sums[m % 2u]);
    }
    return vec4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]) + vec4(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
}

void store_stats(uint group, float most, float sum) {
    uint row = (gl_WorkGroupID.y * gl_NumWorkGroups.z + sequence) * HEADS + key_head * GROUP + group;
    Quads(pc.address[6]).v[row] = floatBitsToUint(vec2(most, sum));
}

// The largest score of a head and the sum of its weights, which the warps left.
vec2 stats_of(uint group) {
    float most = NOTHING, mass = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        most = max(most, warp_most[group * WARPS + i]);
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        mass += warp_mass[group * WARPS + i] * exp2(warp_most[group * WARPS + i] - most);
    return vec2(most, mass);
}

void merge(float most, float mass, inout vec4 sums[VALUE_STEPS]) {
    if (lane_row() < GROUP) {
        if (lane_column() == 0u) {
            warp_most[lane_row() * WARPS + warp()] = most;
            warp_mass[lane_row() * WARPS + warp()] = mass;
        }
        // Elements i and i + 2 are neighbouring features.
        [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++) {
            uint at = (warp() * GROUP + lane_row()) * PAIRS + i * 8u + lane_column() * 2u;
            outputs[at] = vec2(sums[i][0], sums[i][2]);
            outputs[at + 1u] = vec2(sums[i][1], sums[i][3]);
        }
    }
    barrier();
    uint row = (gl_WorkGroupID.y * gl_NumWorkGroups.z + sequence) * HEADS + key_head * GROUP;
    if (SPLITS > 1u && thread() < GROUP) {
        vec2 stats = stats_of(thread());
        store_stats(thread(), stats.x, stats.y);
    }
    [[dont_unroll]] for (uint i = thread(); i < GROUP * FOURS; i += THREADS) {
        uint group = i / FOURS, four = i % FOURS, eight = four / 2u;
        uint at = group * PAIRS + (eight / 8u * 4u + four % 2u * 2u) * 8u + eight % 8u;
        vec2 stats = stats_of(group);
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint w = 0; w < WARPS; w++) {
            float share = exp2(warp_most[group * WARPS + w] - stats.x);
            sum += share * vec4(outputs[w * (GROUP * PAIRS) + at], outputs[w * (GROUP * PAIRS) + at + 8u]);
        }
        store_quad(pc.address[5], row * FOURS + i, DTYPE_OUT, stats.y == 0.0 ? vec4(0.0) : sum / stats.y);
    }
}

void main() {
    key_head = gl_WorkGroupID.x;
    sequence = gl_WorkGroupID.z;
    uint length = uint(clamp(I32s(pc.address[4]).v[sequence], 0, int(pc.p.capacity - PAGE)));
    uint begin = gl_WorkGroupID.y * pc.p.part, end = min(length, begin + pc.p.part);
    uint seen_from = WINDOW != 0u && length > WINDOW ? length - WINDOW : 0u;
    if (WINDOW != 0u) begin = max(begin, seen_from / PAGE * PAGE);
    if (SPLITS > 1u && begin >= end) {
        if (thread() < GROUP) store_stats(thread(), NOTHING, 0.0);
        return;
    }
    uint last = max(end, 1u) - 1u, base = begin + warp() * 16u;
    // The number of a page is asked for a round before its positions are.
    uint page = page_of(base, last), page_ahead = page_of(base + BLOCK_ROUND, last);
    Keys k;
    Values v;
    load_keys(page, base, last, k);
    load_values(page, base, last, v);
    for (uint i = thread(); i < GROUP * FOURS; i += THREADS) {
        int head = int(key_head * GROUP + i / FOURS), at = int(sequence) * pc.p.q_strides[0] + head * pc.p.q_strides[1];
        queries[i] = half_four(load_quad(element_address(pc.address[0], at, DTYPE_BYTES(DTYPE_Q)), i % FOURS, DTYPE_Q));
    }
    barrier();
    vec4 sums[VALUE_STEPS]; // of rows 0 to 7, which are all there is
    [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++)
        sums[i] = vec4(0);
    float most = NOTHING, mass = 0.0, scale = pc.p.scale * 1.4426950408889634; // exp2 below
    [[dont_unroll]] for (uint first = begin; first < end; first += BLOCK_ROUND) {
        base = first + warp() * 16u;
#ifndef EMULATED
        if (base >= end) break; // lanes of a warp alone
#endif
        bool goes_on = first + BLOCK_ROUND < end;
        vec4 s = scores(k) * scale;
        if (goes_on) {
            page = page_ahead;
            page_ahead = page_of(base + 2u * BLOCK_ROUND, last);
            load_keys(page, base + BLOCK_ROUND, last, k);
        }
        bvec4 there;
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            uint p = base + lane_column() + 4u * i;
            there[i] = p < end && p >= seen_from;
        }
        s = mix(vec4(NOTHING), s, there);
        float before = most;
        most = max(most, four_max(max(max(s.x, s.y), max(s.z, s.w))));
        vec4 w = mix(vec4(0), exp2(s - most), there);
        float kept = exp2(before - most);
        mass = mass * kept + (w.x + w.y + (w.z + w.w));
        uvec4 a = uvec4(half_four(w), 0u, 0u);
        [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++) {
            SUM sum = multiply(a, values_of(v, i / 4u, i % 4u), no_sum());
            sums[i] = fma(sums[i], vec4(kept), vec4(sum[0], sum[1], sum[2], sum[3]));
        }
        if (goes_on) load_values(page, base + BLOCK_ROUND, last, v);
    }
    merge(most, four_sum(mass), sums);
}
