#version 460
// Softmax and values of one sequence for a part of the features of a key/value head, left in blocks of 8 in 16 bits. The new key
// is normalised and brought to the cache.
//
// Workgroup (key/value head, part of its slices) and (sequence). A thread handles every 256th position, two heads at a time;
// groups of 256 threads share the slices, of keys for the scores, whose sums over slices are integers as in decode_qkv.glsl, and
// of values. Contexts of at most 256 * UNROLL positions.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#include "batch.glsl"

layout(constant_id = 14) const uint HEAD_PARTS = 2;

const uint STATE = 0u, KEYS = 1u, VALUES = 2u;
const uint WIDE = 256u, WIDE_WARPS = 8u;
const uint THREAD_GROUPS = THREADS / WIDE;
const uint PART_SLICES = SLICES / HEAD_PARTS;
const uint KEY_ROUNDS = (SLICES + THREAD_GROUPS - 1u) / THREAD_GROUPS, VALUE_ROUNDS = (PART_SLICES + THREAD_GROUPS - 1u) / THREAD_GROUPS;
const uint FEATURE_FOURS = HEAD_DIM / 4u;

shared vec4 fresh[(HEADS + 1u) * FEATURE_FOURS]; // q of each head and k
shared int scores[2u * WIDE * UNROLL];
shared float parts[PART_SLICES * 16u * WIDE_WARPS]; // 2 heads of 8 features, per slice and 32 lanes
shared float part_sum[2u * WIDE_WARPS];
shared float part_most[2u * WIDE_WARPS];
shared float inverse_norms[HEADS + 1u];

uint head_of() { return gl_WorkGroupID.x / HEAD_PARTS; } // the key/value head
uint first_slice() { return gl_WorkGroupID.x % HEAD_PARTS * PART_SLICES; }
uint group() { return thread() / WIDE; } // of threads
uint wide_warp() { return warp() % WIDE_WARPS; }
uint position_of(uint u) { return thread() % WIDE + WIDE * u; }

// The first positions are asked for before `now` is known.
uint within(uint u, uint now) { return min(position_of(u), u == 0u ? pc.p.capacity - 1u : now); }

uvec2 key_at(uint four, uint p, uint i) {
    return Weights2(CACHE(KEYS)).v[((head_of() * FEATURE_FOURS + four) * pc.p.capacity + p) * QUAD_WORDS + i];
}
uvec4 value_at(uint slice, uint p, uint i) {
    return Weights4(CACHE(VALUES)).v[((head_of() * SLICES + slice) * pc.p.capacity + p) * QUAD_WORDS + i];
}

// 1 / rms of q and k from the parts of their squares, 32 threads to each.
void load_norms() {
    for (uint base = 0; base <= HEADS; base += WARPS) {
        uint head = min(base + warp(), HEADS);
        uint64_t squares = in_state(AT_SQUARES) + (head_of() * (HEADS + 1u) + head) * SLICES * 16u, sum = 0ul;
        [[unroll]] for (uint n = 0; n < (2u * SLICES + 31u) / 32u; n++)
            if (lane() + 32u * n < 2u * SLICES) sum += pack64(Shared2(squares).v[lane() + 32u * n]);
        [[unroll]] for (uint m = 1u; m < 32u; m <<= 1) sum += lane_xor64(sum, m);
        if (lane() == 0u) inverse_norms[head] = inversesqrt(fma(sum_value(unpack32(sum)), 1.0 / SQUARE_STEPS, pc.p.head_eps));
    }
}

// Rounds of slices that a thread asks for at once.
const uint KEY_BATCH = UNROLL > 2u ? 1u : 4u, VALUE_BATCH = UNROLL > 2u ? 1u : 2u;
const uint KEY_LOADS = KEY_BATCH * UNROLL, VALUE_LOADS = VALUE_BATCH * UNROLL;

struct Keys { uvec2 first[KEY_LOADS * QUAD_WORDS], partner[KEY_LOADS * QUAD_WORDS]; };
struct Values { uvec4 v[VALUE_LOADS * QUAD_WORDS]; };

uint slice_of(uint round) { return round * THREAD_GROUPS + group(); }

void load_keys(uint round, uint now, inout Keys k) {
    [[unroll]] for (uint n = 0; n < KEY_LOADS * QUAD_WORDS; n++) {
        uint i = n % QUAD_WORDS, p = within(n / QUAD_WORDS % UNROLL, now), four = min(slice_of(round + n / QUAD_WORDS / UNROLL), SLICES - 1u);
        k.first[n] = key_at(four, p, i);
        k.partner[n] = key_at(SLICES + four, p, i);
    }
}

void load_values(uint round, uint now, inout Values v) {
    [[unroll]] for (uint n = 0; n < VALUE_LOADS * QUAD_WORDS; n++) {
        uint slice = min(slice_of(round + n / QUAD_WORDS / UNROLL), PART_SLICES - 1u);
        v.v[n] = value_at(first_slice() + slice, within(n / QUAD_WORDS % UNROLL, now), n % QUAD_WORDS);
    }
}

int score_part(vec4 q_first, vec4 q_partner, vec4 first, vec4 partner) {
    float s = dot_on(q_partner, partner, dot_on(q_first, first, 0.0));
    float steps = clamp(s, -SCORE_LIMIT, SCORE_LIMIT) * 4096.0;
    return int(steps + (steps < 0.0 ? -0.5 : 0.5));
}

// Adds the group's parts of the scores of two heads.
void add_scores(uint pair, uint round, uint now, inout Keys k, inout ivec2 sums[UNROLL]) {
    uint q0 = 2u * pair * FEATURE_FOURS, q1 = min(2u * pair + 1u, HEADS - 1u) * FEATURE_FOURS;
    [[unroll]] for (uint n = 0; n < KEY_LOADS; n++) {
        uint u = n % UNROLL, slice = slice_of(round + n / UNROLL);
        if (position_of(u) > now || slice >= SLICES) continue;
        uint w = n * QUAD_WORDS, last = w + QUAD_WORDS - 1u;
        vec4 first = quad_value(k.first[w], k.first[last]), partner = quad_value(k.partner[w], k.partner[last]);
        if (position_of(u) == now) { // not in the cache yet and not normalised
            first = fresh[HEADS * FEATURE_FOURS + slice] * 0.125;
            partner = fresh[HEADS * FEATURE_FOURS + SLICES + slice] * 0.125;
        }
        sums[u] += ivec2(score_part(fresh[q0 + slice], fresh[q0 + SLICES + slice], first, partner),
                         score_part(fresh[q1 + slice], fresh[q1 + SLICES + slice], first, partner));
    }
}

// Of one slice: values of two heads weighted by e, summed over the warp's positions.
void add_values(uint slice, uint at, uint now, inout Values v, inout vec2 e[UNROLL]) {
    float o[16];
    [[unroll]] for (uint i = 0; i < 16u; i++) o[i] = 0.0;
    [[unroll]] for (uint u = 0; u < UNROLL; u++) {
        if (position_of(u) > now) continue;
        uint w = (at * UNROLL + u) * QUAD_WORDS;
        vec4 x = quad_value(v.v[w].xy, v.v[w].zw), y = quad_value(v.v[w].zw, v.v[w].zw);
        if (DTYPE_KV == DTYPE_F32) y = uintBitsToFloat(v.v[w + QUAD_WORDS - 1u]);
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            o[i] = fma(e[u].x, x[i], o[i]);
            o[4u + i] = fma(e[u].x, y[i], o[4u + i]);
            o[8u + i] = fma(e[u].y, x[i], o[8u + i]);
            o[12u + i] = fma(e[u].y, y[i], o[12u + i]);
        }
    }
    bool up = (lane() & 16u) != 0u;
    [[unroll]] for (uint i = 0; i < 8u; i++) o[i] = (up ? o[8u + i] : o[i]) + lane_xor(up ? o[i] : o[8u + i], 16u);
    up = (lane() & 8u) != 0u;
    [[unroll]] for (uint i = 0; i < 4u; i++) o[i] = (up ? o[4u + i] : o[i]) + lane_xor(up ? o[i] : o[4u + i], 8u);
    up = (lane() & 4u) != 0u;
    [[unroll]] for (uint i = 0; i < 2u; i++) o[i] = (up ? o[2u + i] : o[i]) + lane_xor(up ? o[i] : o[2u + i], 4u);
    up = (lane() & 2u) != 0u;
    o[0] = (up ? o[1] : o[0]) + lane_xor(up ? o[0] : o[1], 2u);
    o[0] += lane_xor(o[0], 1u);
    if (slice < PART_SLICES && (lane() & 1u) == 0u) parts[(slice * 16u + (lane() >> 1)) * WIDE_WARPS + wide_warp()] = o[0];
}

// The part's features of two heads, merged over the warps.
void merge(uint pair) {
    for (uint item = thread(); item < PART_SLICES * 16u; item += THREADS) {
        uint value = item & 15u, half_ = value >> 3, head = 2u * pair + half_;
        float peak = -1e9, sum = 0.0, x = 0.0;
        [[unroll]] for (uint i = 0; i < WIDE_WARPS; i++) peak = max(peak, part_most[half_ * WIDE_WARPS + i]);
        [[unroll]] for (uint i = 0; i < WIDE_WARPS; i++) {
            float f = exp2(part_most[half_ * WIDE_WARPS + i] - peak);
            sum = fma(f, part_sum[half_ * WIDE_WARPS + i], sum);
            x = fma(f, parts[item * WIDE_WARPS + i], x);
        }
        Blocks q = blocks_make(x / sum);
        if (head >= HEADS) continue;
        uint block = (head_of() * HEADS + head) * SLICES + first_slice() + (item >> 4), which = value & 7u;
        if (which < 2u) { // even and odd features
            Shared1(in_state(AT_BLOCKS)).v[4u * block + which] = q.high;
            Shared1(in_state(AT_BLOCKS)).v[4u * block + 2u + which] = q.low;
        }
        if (which == 0u) F32x2s(in_state(AT_SCALES)).v[block] = vec2(q.scale, q.sum);
    }
}

void main() {
    sequence = gl_WorkGroupID.y;
    uint now = now_of_sequence();
    Keys keys;
    load_keys(0u, now, keys);
    for (uint i = thread(); i < (HEADS + 1u) * FEATURE_FOURS; i += THREADS) fresh[i] = F32x4s(in_state(AT_HEADS)).v[head_of() * (HEADS + 1u) * FEATURE_FOURS + i];
    load_norms();
    for (uint pair = 0; pair < PAIRS; pair++) {
        for (uint i = thread(); i < 2u * WIDE * UNROLL; i += THREADS) scores[i] = 0;
        barrier();
        ivec2 sums[UNROLL];
        [[unroll]] for (uint u = 0; u < UNROLL; u++) sums[u] = ivec2(0);
        [[dont_unroll]] for (uint round = 0; round < KEY_ROUNDS; round += KEY_BATCH) {
            if (round > 0u || pair > 0u) load_keys(round, now, keys);
            add_scores(pair, round, now, keys, sums);
        }
        Values values;
        load_values(0u, now, values);
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            if (position_of(u) > now) continue;
            atomicAdd(scores[2u * position_of(u)], sums[u].x);
            atomicAdd(scores[2u * position_of(u) + 1u], sums[u].y);
        }
        barrier();
        float key_scale = inverse_norms[HEADS];
        vec2 scale = vec2(inverse_norms[2u * pair], inverse_norms[min(2u * pair + 1u, HEADS - 1u)]) * (pc.p.score_scale * 1.4426950408889634);
        vec2 s[UNROLL], total = vec2(0);
        ivec2 top = ivec2(-(1 << 28));
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            s[u] = vec2(scores[2u * position_of(u)], scores[2u * position_of(u) + 1u]) * (1.0 / 4096.0) * (position_of(u) == now ? 8.0 * key_scale : 1.0);
            if (position_of(u) <= now) top = max(top, ivec2(clamp(s[u] * scale, -1e7, 1e7) * 16.0));
        }
        vec2 most = max(vec2(-1e9), vec2(lane_max(top.x), lane_max(top.y)) * 0.0625);
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            if (position_of(u) > now) continue;
            s[u] = exp2(fma(s[u], scale, -most));
            total += s[u];
        }
        bool up = (lane() & 16u) != 0u;
        float mass = (up ? total.y : total.x) + lane_xor(up ? total.x : total.y, 16u);
        [[unroll]] for (uint m = 1u; m < 16u; m <<= 1) mass += lane_xor(mass, m);
        if (group() == 0u && (lane() & 15u) == 0u) {
            part_sum[(lane() >> 4) * WIDE_WARPS + wide_warp()] = mass;
            part_most[(lane() >> 4) * WIDE_WARPS + wide_warp()] = lane() == 0u ? most.x : most.y;
        }
        [[dont_unroll]] for (uint round = 0; round < VALUE_ROUNDS; round += VALUE_BATCH) {
            if (round > 0u) load_values(round, now, values);
            add_values(slice_of(round), 0u, now, values, s);
            if (VALUE_BATCH > 1u) add_values(slice_of(round + 1u), 1u, now, values, s);
        }
        barrier();
        merge(pair);
    }
    if (gl_WorkGroupID.x % HEAD_PARTS == 0u) {
        float key_scale = inverse_norms[HEADS];
        for (uint i = thread(); i < FEATURE_FOURS; i += THREADS) {
            vec4 key = fresh[HEADS * FEATURE_FOURS + i] * key_scale;
            [[unroll]] for (uint j = 0; j < 4u; j++) store_float(CACHE(KEYS), ((head_of() * FEATURE_FOURS + i) * pc.p.capacity + now) * 4u + j, DTYPE_KV, key[j]);
        }
    }
}
