#version 460
// paged_attention: out = softmax(scale * q . k) . v of one query of each sequence, over keys and values in pages.
//
// A workgroup serves GROUP query heads of a key head, over a part of a sequence's positions. SHARING workgroups have the heads of one key
// head. Where there are few workgroups, each has less to compute, and keys come from the cache again. A workgroup takes THREADS / TEAM
// pages at a time, each by a team of TEAM threads, which are SPREAD threads for two positions:
//   scores    a thread two neighbouring positions: dot products of its share of the features with all GROUP queries. The SPREAD shares
//             are added through shared memory
//   softmax   the largest score so far is that of the workgroup, so its threads need not be merged at the end
//   values    a thread eight features of every position in SHARES, and of every group of eight in BESIDE
// All of it is float32. The work is that of reading: a page is read once for all heads. Few workgroups wait for memory more than they
// read. So a thread asks for its first values before it has their weights.
//
// Parts have pc.p.part positions. Of several parts, where SPLITS is more than 1, each leaves its outputs in float32, out (split, batch, heads, HEAD_DIM).
// It also leaves the largest score, in powers of two, and the sum of weights; attention_merge does the rest. A part
// that has no positions leaves a sum of 0 and no outputs. A sequence without positions gives 0. Where WINDOW is not 0, a query sees the last
// WINDOW positions: a part begins with the page of the first of them.
//
// Queries begin at multiples of four elements. Pages have the layout of include/kv_address.glsl. Their PAGE positions are an even number, HEAD_DIM a multiple of 32.
// THREADS is a multiple of SPREAD * PAGE / 2, and PAGE of PLACES * BESIDE. Workgroups: (KV_HEADS * SHARING, parts, batch).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 7
#define PUSH PagedAttentionPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEAD_DIM = 128;
layout(constant_id = 2) const uint DTYPE_Q = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_KV = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 5) const uint GROUP = 1;
layout(constant_id = 6) const uint KV_HEADS = 1;
layout(constant_id = 7) const uint PAGE = 64;
layout(constant_id = 8) const uint SPLITS = 1;
layout(constant_id = 9) const uint WINDOW = 0;
layout(constant_id = 10) const uint SHARING = 1;

#include "include/vec4.glsl"
#include "include/vector.glsl"
#define PAGE_TABLE pc.address[3]
#include "include/kv_address.glsl"
#include "include/kv_codes.glsl"

const uint SPREAD = 2u; // measured best of 1, 2 and 4
const uint PAIRS = PAGE / 2u, TEAM = PAIRS * SPREAD, TEAMS = THREADS / TEAM, TILE = TEAMS * PAGE;
const uint FOURS = HEAD_DIM / 4u, EIGHTS = HEAD_DIM / 8u, HEADS = KV_HEADS * SHARING * GROUP;
const uint OWN_FOURS = FOURS / SPREAD;                       // of a thread's keys
const uint KEYS_AHEAD = OWN_FOURS / ((OWN_FOURS + 7u) / 8u); // loads that are on their way
const uint BESIDE = EIGHTS <= 8u ? 8u : 16u;                 // groups of eight features at once
const uint SHARES = TEAM / BESIDE;                           // threads of a team that have the same features of other positions
const uint ROUNDS = (EIGHTS + BESIDE - 1u) / BESIDE;         // until all features had their turn
const uint OWN_POSITIONS = PAGE / SHARES;                    // of a thread's values
const uint POSITIONS_AHEAD = ROUNDS == 1u && OWN_POSITIONS >= 8u ? 8u : 4u;
const uint PLACES = 4u; // shares that are merged in turns
const uint MAX_SUBGROUPS = THREADS / 4u;
const float LOWEST = -1e30;

shared vec4 rows[PLACES * GROUP * FOURS]; // the scaled queries; at the end the outputs, in PLACES parts
shared float weights[TILE * GROUP];
shared vec2 shares[THREADS * GROUP]; // of scores
shared float beside[GROUP * MAX_SUBGROUPS];

// Two fours of neighbours in memory, in that order.
struct Raw {
    uvec4 first, second;
};

uint sequence, key_head, first_head;
uint team, lane;                      // a thread's team, and its number there
vec2 scores[GROUP];                   // of a thread's two positions
vec4 sums[GROUP * ROUNDS * 2u];       // of its features
Raw values[POSITIONS_AHEAD * ROUNDS]; // that are on their way

Raw load_raw(uint64_t at) {
    if (DTYPE_KV == DTYPE_U8) return Raw(uvec4(U32x2s(at).v[0], 0, 0), uvec4(0));
    if (DTYPE_KV == DTYPE_F32) return Raw(U32x4s(at).v[0], U32x4s(at).v[1]);
    return Raw(U32x4s(at).v[0], uvec4(0));
}

void take(Raw raw, out vec4 first, out vec4 second) {
    if (DTYPE_KV == DTYPE_U8) {
        first = kv_decode(raw.first.x);
        second = kv_decode(raw.first.y);
    } else if (DTYPE_KV == DTYPE_F32) {
        first = uintBitsToFloat(raw.first);
        second = uintBitsToFloat(raw.second);
    } else {
        first = pair_values(raw.first.xy, DTYPE_KV);
        second = pair_values(raw.first.zw, DTYPE_KV);
    }
}

void load_queries() {
    float scale = pc.p.scale * 1.4426950408889634; // exp2 below
    for (uint i = gl_LocalInvocationID.x; i < GROUP * FOURS; i += THREADS) {
        int head = int(first_head + i / FOURS), at = int(sequence) * pc.p.q_strides[0] + head * pc.p.q_strides[1];
        rows[i] = load_quad(element_address(pc.address[0], at, DTYPE_BYTES(DTYPE_Q)), i % FOURS, DTYPE_Q) * scale;
    }
}

// Scores of two positions from `position` on, of a page, by a thread's share of the features.
void score(uint page, uint position) {
    uint begin = lane / PAIRS * OWN_FOURS;
    uint64_t keys = key_address(pc.address[1], uvec2(page, position), key_head, 0);
    [[dont_unroll]] for (uint four = begin; four < begin + OWN_FOURS; four += KEYS_AHEAD) {
        Raw raw[KEYS_AHEAD];
        [[unroll]] for (uint i = 0; i < KEYS_AHEAD; i++)
            raw[i] = load_raw(keys + (four + i) * (PAGE * 4u * KV_BYTES));
        [[unroll]] for (uint i = 0; i < KEYS_AHEAD; i++) {
            vec4 a, b;
            take(raw[i], a, b);
            [[unroll]] for (uint g = 0; g < GROUP; g++) {
                vec4 q = rows[g * FOURS + four + i];
                scores[g] += vec2(dot(q, a), dot(q, b));
            }
        }
    }
}

// Asks for values of a page, those of a thread's positions from number `first` on. Positions after `last` have no weight: the last one
// does for them, which is a number.
void ask_values(uint page, uint first, uint last) {
    [[unroll]] for (uint i = 0; i < POSITIONS_AHEAD; i++) {
        uint position = min((first + i) * SHARES + lane % SHARES, last);
        [[unroll]] for (uint r = 0; r < ROUNDS; r++) {
            uint eight = min(r * BESIDE + lane / SHARES, EIGHTS - 1u);
            values[i * ROUNDS + r] = load_raw(value_address(pc.address[2], uvec2(page, position), key_head, eight));
        }
    }
}

// Adds the weighted values of a page, the first of which were asked for.
void add_values(uint page, uint last) {
    [[dont_unroll]] for (uint first = 0; first < OWN_POSITIONS; first += POSITIONS_AHEAD) {
        if (first > 0u) ask_values(page, first, last);
        [[unroll]] for (uint i = 0; i < POSITIONS_AHEAD; i++) {
            uint position = team * PAGE + (first + i) * SHARES + lane % SHARES;
            float weight[GROUP];
            [[unroll]] for (uint g = 0; g < GROUP; g++)
                weight[g] = weights[position * GROUP + g];
            [[unroll]] for (uint r = 0; r < ROUNDS; r++) {
                vec4 a, b;
                take(values[i * ROUNDS + r], a, b);
                [[unroll]] for (uint g = 0; g < GROUP; g++) {
                    sums[(g * ROUNDS + r) * 2u] += weight[g] * a;
                    sums[(g * ROUNDS + r) * 2u + 1u] += weight[g] * b;
                }
            }
        }
    }
}

// Adds the shares of a thread's scores.
void add_shares() {
    [[unroll]] for (uint g = 0; g < GROUP; g++)
        shares[gl_LocalInvocationID.x * GROUP + g] = scores[g];
    barrier();
    [[unroll]] for (uint g = 0; g < GROUP; g++) {
        scores[g] = vec2(0.0);
        [[unroll]] for (uint i = 0; i < SPREAD; i++)
            scores[g] += shares[(team * TEAM + i * PAIRS + lane % PAIRS) * GROUP + g];
    }
}

void store_stats(uint group, float most, float sum) {
    uint row = (gl_WorkGroupID.y * gl_NumWorkGroups.z + sequence) * HEADS + first_head + group;
    Quads(pc.address[6]).v[row] = floatBitsToUint(vec2(most, sum));
}

// The sums of all teams; threads that share features have PLACES places, which they take in turns.
void merge() {
    uint share = lane % SHARES, eight = lane / SHARES;
    [[dont_unroll]] for (uint turn = 0; turn < TEAMS * (SHARES / PLACES); turn++) {
        barrier();
        if (team * (SHARES / PLACES) + share / PLACES != turn) continue;
        [[unroll]] for (uint i = 0; i < GROUP * ROUNDS * 2u; i++) {
            uint to = i / 2u % ROUNDS * BESIDE + eight;
            if (to >= EIGHTS) continue;
            uint at = (share % PLACES * GROUP + i / (ROUNDS * 2u)) * FOURS + to * 2u + i % 2u;
            rows[at] = turn == 0u ? sums[i] : rows[at] + sums[i];
        }
    }
    barrier();
}

// The sum of weights of a head, which the subgroups left in parts.
float mass_of(uint group) {
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += beside[group * MAX_SUBGROUPS + i];
    return sum;
}

void main() {
    key_head = gl_WorkGroupID.x / SHARING;
    first_head = gl_WorkGroupID.x * GROUP;
    sequence = gl_WorkGroupID.z;
    uint length = uint(clamp(I32s(pc.address[4]).v[sequence], 0, int(pc.p.capacity - PAGE)));
    uint begin = gl_WorkGroupID.y * pc.p.part, end = min(length, begin + pc.p.part);
    uint seen_from = WINDOW != 0u && length > WINDOW ? length - WINDOW : 0u;
    if (WINDOW != 0u) begin = max(begin, seen_from / PAGE * PAGE);
    if (SPLITS > 1u && begin >= end) {
        if (gl_LocalInvocationID.x < GROUP) store_stats(gl_LocalInvocationID.x, LOWEST, 0.0);
        return;
    }
    load_queries();
    barrier();
    team = gl_LocalInvocationID.x / TEAM;
    lane = gl_LocalInvocationID.x % TEAM;
    uint pair = lane % PAIRS * 2u;
    [[unroll]] for (uint i = 0; i < GROUP * ROUNDS * 2u; i++)
        sums[i] = vec4(0.0);
    float most[GROUP], mass[GROUP];
    [[unroll]] for (uint g = 0; g < GROUP; g++) {
        most[g] = LOWEST;
        mass[g] = 0.0;
    }
    [[dont_unroll]] for (uint tile = begin; tile < end; tile += TILE) {
        uint first = tile + team * PAGE;
        bool there = first < end;
        uint page = kv_page(sequence, first);
        [[unroll]] for (uint g = 0; g < GROUP; g++)
            scores[g] = vec2(0.0);
        uint last = min(PAGE, end - first) - 1u;
        if (there) {
            score(page, pair);
            ask_values(page, 0, last);
        }
        add_shares();
        bvec2 seen = bvec2(first + pair < end, first + pair + 1u < end);
        if (WINDOW != 0u) seen = bvec2(seen.x && first + pair >= seen_from, seen.y && first + pair + 1u >= seen_from);
        [[unroll]] for (uint g = 0; g < GROUP; g++) {
            scores[g] = mix(vec2(LOWEST), scores[g], seen);
            float largest = subgroupMax(max(scores[g].x, scores[g].y));
            if (subgroupElect()) beside[g * MAX_SUBGROUPS + gl_SubgroupID] = largest;
        }
        barrier();
        [[unroll]] for (uint g = 0; g < GROUP; g++) {
            float now = most[g];
            for (uint i = 0; i < gl_NumSubgroups; i++) now = max(now, beside[g * MAX_SUBGROUPS + i]);
            float shrink = exp2(most[g] - now);
            vec2 weight = mix(vec2(0.0), exp2(scores[g] - now), seen);
            most[g] = now;
            mass[g] = mass[g] * shrink + (lane < PAIRS ? weight.x + weight.y : 0.0);
            if (lane < PAIRS) {
                weights[(team * PAGE + pair) * GROUP + g] = weight.x;
                weights[(team * PAGE + pair + 1u) * GROUP + g] = weight.y;
            }
            [[unroll]] for (uint i = 0; i < ROUNDS * 2u; i++)
                sums[g * ROUNDS * 2u + i] *= shrink;
        }
        barrier();
        if (there) add_values(page, last);
    }
    [[unroll]] for (uint g = 0; g < GROUP; g++) {
        float sum = subgroupAdd(mass[g]);
        if (subgroupElect()) beside[g * MAX_SUBGROUPS + gl_SubgroupID] = sum;
    }
    merge();
    uint row = (gl_WorkGroupID.y * gl_NumWorkGroups.z + sequence) * HEADS + first_head;
    [[unroll]] for (uint g = 0; g < GROUP; g++) {
        if (SPLITS > 1u && gl_LocalInvocationID.x == g) store_stats(g, most[g], mass_of(g));
    }
    [[dont_unroll]] for (uint i = gl_LocalInvocationID.x; i < GROUP * FOURS; i += THREADS) {
        float sum = mass_of(i / FOURS);
        vec4 out_four = rows[i];
        [[unroll]] for (uint share = 1; share < PLACES; share++)
            out_four += rows[share * GROUP * FOURS + i];
        store_quad(pc.address[5], row * FOURS + i, DTYPE_OUT, sum == 0.0 ? vec4(0.0) : out_four / sum);
    }
}
