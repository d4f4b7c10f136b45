// Attention of a row over a key/value head. With HEAD_NORM the unit's q and k are normalised first; then they are
// rotated. A unit does this for its own k and, in a chunk, for those of the tokens before it. The cache has them for
// later dispatches only, so each unit makes them for itself. Then each warp takes blocks of 16 positions. Scores and
// values are matrix products whose rows are the query heads, with a running softmax between them. The warps meet at the
// end.

#include "include/kv_address.glsl"
#include "include/kv_codes.glsl"

const uint FOURS = HEAD_DIM / 4u, EIGHTS = HEAD_DIM / 8u, VALUE_PARTS = (EIGHTS + 7u) / 8u;
// Where there are few units, two share the values of one and both make its scores. Heads of more than 128 features have four: keys take most
// registers then.
const uint SHARES = HEAD_DIM > 128u ? VALUE_PARTS : VALUE_PARTS % 2u != 0u ? 1u : KV_HEADS *SEQUENCES <= 64u ? 2u : 1u;
const uint SHARE_EIGHTS = VALUE_PARTS / SHARES * 8u;
const uint ATTEND_UNITS = KV_HEADS * SEQUENCES * SHARES;

shared float raw_squares[(HEADS + TOKENS) * FOURS / 4u];
shared float warp_most[HEADS * WARPS], warp_mass[HEADS * WARPS];

uint attention_sequence, attention_head, first_eight; // of the unit; the first one is its row

uint own_token() { return attention_sequence % TOKENS; }
uint start() { return position_of(attention_sequence / TOKENS * TOKENS); } // of the first row of its sequence
uvec2 place_of(uint page, uint position) { return kv_place(page, attention_sequence / TOKENS, position); }
uint64_t cached_key(uint four, uvec2 place) { return key_address(ADDRESS(KEYS), place, attention_head, four); }
uint64_t cached_value(uint eight, uvec2 place) { return value_address(ADDRESS(VALUES), place, attention_head, eight); }

// The page of a block of 16 positions; pages have multiples of those.
uint page_of(uint base, uint end) { return kv_page(attention_sequence / TOKENS, min(base, end)); }

#include "coopmat/kv_blocks.glsl"

uint cached(vec2 x) { return DTYPE_KV == DTYPE_BF16 ? bf16_bits(x.x) | bf16_bits(x.y) << 16 : half_pair(x); }
uvec2 cached(vec4 x) { return CODED ? uvec2(kv_encode(x), 0u) : uvec2(cached(x.xy), cached(x.zw)); }

void keep_four(uint64_t at, uvec2 x) {
    if (CODED) U32s(at).v[0] = x.x;
    else if (DTYPE_KV == DTYPE_F32) F32x4s(at).v[0] = vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
    else Plain2(at).v[0] = x;
}

// ---- q, k and v of the tokens that are new -----------------------------------------------------------------------------------

const uint RAW = (HEADS + TOKENS) * FOURS, ALL_RAW = RAW + TOKENS * FOURS; // q of each head, k of each token, then v of each

// q and k lie in the pool until they are rotated. After them lie the rotated ones and v, in float16 or as the cache has
// them.
void keep_raw(uint four, vec4 x) {
    pool[four] = x.xy;
    pool[RAW + four] = x.zw;
}
vec4 raw(uint four) { return vec4(pool[four], pool[RAW + four]); }
void keep_fresh(uint four, uvec2 x) { pool[2u * RAW + four] = uintBitsToFloat(x); }
uvec2 fresh(uint four) { return floatBitsToUint(pool[2u * RAW + four]); }
uvec2 new_key(uint token, uint four) { return fresh((HEADS + token) * FOURS + four); }
uvec2 new_value(uint token, uint four) { return fresh(RAW + token * FOURS + four); }

uint token_of(uint four) {
    uint type = four / FOURS;
    return type < HEADS ? own_token() : (type - HEADS) % TOKENS;
}
uint row_of(uint four) { return attention_sequence / TOKENS * TOKENS + token_of(four); }
bool is_seen(uint four) { return four < ALL_RAW && token_of(four) <= own_token(); }

uint fresh_at(uint four) { // in columns
    uint type = four / FOURS, feature = four % FOURS * 4u;
    if (type < HEADS) return (attention_head * HEADS + type) * (1u + GATES) * HEAD_DIM + feature;
    return Q_COLUMNS * (1u + GATES) + (KV_HEADS * ((type - HEADS) / TOKENS) + attention_head) * HEAD_DIM + feature;
}

struct Rotation {
    vec4 rope_angles[2], weight, partner_weight;
}; // inputs of a four of q or k, loaded before it is there

vec4 norm_four(uint64_t norm, uint four) {
    if (DTYPE_W == DTYPE_F32) return uintBitsToFloat(Weights4(norm).v[four]);
    uvec2 w = Weights2(norm).v[four];
    return vec4(pair_value(w.x, DTYPE_W), pair_value(w.y, DTYPE_W));
}

// The four of a head that one is rotated with.
uint partner_of(uint feature) { return rope_quad((rope_members(feature) + FOURS / 2u) % FOURS); }

void load_rotation(uint four, inout Rotation t) {
    uint feature = four % FOURS;
    uint64_t rope_angles = in_state(AT_ROPE_ANGLES + rope_of(layer) * BYTES_ROPE_ANGLES + row_of(four) * HEAD_DIM * 4u);
    if (HEAD_NORM != 0u) {
        uint64_t norm = four / FOURS < HEADS ? q_norm() : k_norm();
        t.weight = norm_four(norm, feature);
        t.partner_weight = norm_four(norm, partner_of(feature));
    }
    [[unroll]] for (uint i = 0; i < 2u; i++)
        t.rope_angles[i] = uintBitsToFloat(Weights4(rope_angles).v[rope_members(feature) % (FOURS / 2u) * 2u + i]);
}

void take_fresh() {
    const uint rounds = (ALL_RAW + THREADS - 1u) / THREADS;
    Rotation rotation[rounds];
    [[unroll]] for (uint i = 0; i < rounds; i++)
        load_rotation(min(thread() + i * THREADS, RAW - 1u), rotation[i]);
    [[unroll]] for (uint i = 0; i < rounds; i++) {
        uint four = thread() + i * THREADS, spins = 0u;
        if (!is_seen(four)) continue;
        uvec4 words;
        do {
            words = Shared4(in_state(AT_FRESH + (row_of(four) * QKV_COLUMNS + fresh_at(four)) * 4u)).v[0];
        } while (keep_spinning(is_fresh(words), spins));
        vec4 x = uintBitsToFloat(words);
        float square = HEAD_NORM != 0u ? four_sum(dot(x, x)) : 0.0;
        if (four < RAW) {
            keep_raw(four, x);
            if (HEAD_NORM != 0u && (four & 3u) == 0u) raw_squares[four / 4u] = square;
        } else {
            keep_fresh(four, cached(x));
        }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < rounds; i++) {
        uint four = thread() + i * THREADS;
        if (four >= RAW || !is_seen(four)) continue;
        uint type = four / FOURS, feature = four % FOURS;
        bool second = rope_members(feature) >= FOURS / 2u;
        vec4 x = raw(four), y = raw(type * FOURS + partner_of(feature));
        if (HEAD_NORM != 0u) {
            x *= rotation[i].weight;
            y *= rotation[i].partner_weight;
        }
        vec4 cosine = vec4(rotation[i].rope_angles[0].xz, rotation[i].rope_angles[1].xz),
             sine = vec4(rotation[i].rope_angles[0].yw, rotation[i].rope_angles[1].yw);
        x = x * cosine + y * (second ? sine : -sine);
        if (HEAD_NORM != 0u) {
            float square = 0.0;
            [[unroll]] for (uint j = 0; j < FOURS / 4u; j++)
                square += raw_squares[type * (FOURS / 4u) + j];
            x *= inversesqrt(square * (1.0 / float(HEAD_DIM)) + pc.p.head_eps);
        } else x = within_half(x);
        keep_fresh(four, type < HEADS ? half_four(x) : cached(x));
    }
    barrier();
}

// ---- blocks of positions ---------------------------------------------------------------------------------------------------

// The new token at a position from `end` on. Positions after the row's own get the row's token, with no weight.
uint token_at(uint position, uint end) { return TOKENS == 1u ? 0u : min(max(position, end) - end, own_token()); }

// Rows that the cache does not hold yet.
void put_new_keys(uint base, uint end, inout Keys k) {
    uint p = key_position(base), first = token_at(p, end), second = token_at(p + 8u, end);
    [[unroll]] for (uint m = 0; m < KEY_STEPS; m++) {
        uvec2 a = new_key(first, 4u * m + lane_column()), b = new_key(second, 4u * m + lane_column());
        if (p >= end) k.first[m] = a;
        if (p + 8u >= end) k.second[m] = b;
    }
}
void put_new_values(uint base, uint end, inout Values v) {
    [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++) {
        uint p = base + lane_column() + 4u * (i % 4u), token = token_at(p, end),
             eight = min(first_eight + i / 4u * 8u + lane_row(), EIGHTS - 1u);
        if (p >= end) v.v[i] = uvec4(new_value(token, 2u * eight), new_value(token, 2u * eight + 1u));
    }
}

vec4 scores(inout Keys k) {
    SUM sums[2]; // two, since products that add to the same wait for each other
    sums[0] = no_sum();
    sums[1] = no_sum();
    [[unroll]] for (uint m = 0; m < KEY_STEPS; m++) {
        uvec2 q = lane_row() < HEADS ? fresh(min(lane_row(), HEADS - 1u) * FOURS + 4u * m + lane_column()) : uvec2(0);
        sums[m % 2u] = multiply(uvec4(q, 0u, 0u), uvec4(halves(k.first[m]), halves(k.second[m])), sums[m % 2u]);
    }
    return vec4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]) + vec4(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
}

// Heads whose values are merged at a time.
const uint MERGED_VALUES = VALUE_STEPS * 8u, MERGED_ROOM = POOL / (WARPS * MERGED_VALUES), MERGED_THREADS = THREADS / MERGED_VALUES;
const uint MERGED = MERGED_ROOM < MERGED_THREADS ? MERGED_ROOM : MERGED_THREADS;

// The sigmoids of the gates of two neighbouring features of a head, which are after those of the head. Kernels with gates wait for nothing.
vec2 gates_of(uint head, uint feature) {
    uint64_t at = in_state(AT_FRESH + (attention_sequence * QKV_COLUMNS + (2u * head + 1u) * HEAD_DIM + feature) * 4u);
    return 1.0 / (1.0 + exp(-uintBitsToFloat(Shared2(at).v[0])));
}

// The heads' values, merged over the warps.
void merge(float most, float mass, inout vec4 sums[VALUE_STEPS]) {
    uint head = min(lane_row(), HEADS - 1u);
    bool writes = lane_row() < HEADS && lane_column() == 0u;
    if (writes) warp_most[head * WARPS + warp()] = most;
    barrier();
    float top = NOTHING;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        top = max(top, warp_most[head * WARPS + i]);
    float share_of_warp = exp2(most - top);
    if (writes) warp_mass[head * WARPS + warp()] = mass * share_of_warp;
    [[dont_unroll]] for (uint first = 0; first < HEADS; first += MERGED) {
        if (first > 0u) barrier();
        // Elements i and i + 2 are neighbouring features.
        if (lane_row() < HEADS && lane_row() / MERGED * MERGED == first) {
            [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++) {
                uint at = ((warp() * MERGED + lane_row() % MERGED) * VALUE_STEPS + i) * 8u + lane_column() * 2u;
                pool[at] = vec2(sums[i][0], sums[i][2]) * share_of_warp;
                pool[at + 1u] = vec2(sums[i][1], sums[i][3]) * share_of_warp;
            }
        }
        barrier();
        uint at = thread() % MERGED_VALUES, h = thread() / MERGED_VALUES, eight = first_eight + at / 32u * 8u + at % 8u;
        if (h >= MERGED || first + h >= HEADS || eight >= EIGHTS) continue;
        vec2 sum = vec2(0);
        float total = 0.0;
        [[unroll]] for (uint i = 0; i < WARPS; i++) {
            sum += pool[(i * MERGED + h) * MERGED_VALUES + at];
            total += warp_mass[(first + h) * WARPS + i];
        }
        vec2 value = sum / total;
        uint feature = eight * 8u + at / 8u % 4u * 2u, head_of_all = attention_head * HEADS + first + h,
             column = head_of_all * HEAD_DIM + feature, a_lane = attention_sequence % 8u * 4u + column % 8u / 2u;
        if (GATES != 0u) value *= gates_of(head_of_all, feature);
        Shared1(in_state(AT_ATTENTION + word_at(Q_COLUMNS, attention_sequence / 8u, column / 16u, a_lane, column / 8u % 2u))).v[0] =
            tagged(half_pair(value), tag_of_layer());
    }
}

void attention(uint unit) {
    attention_sequence = unit / SHARES / KV_HEADS;
    attention_head = unit / SHARES % KV_HEADS;
    first_eight = unit % SHARES * SHARE_EIGHTS;
    uint end = start(), now = end + own_token(), seen = seen_from(layer, now), from = seen & ~15u, base = from + warp() * 16u;
    // The number of a page is asked for a round before its positions are.
    uint page = page_of(base, end), page_ahead = ROUNDS == 1u ? 0u : page_of(base + WARPS * 16u, end);
    Keys k;
    Values v;
    load_keys(page, base, end, k);
    load_values(page, base, end, v);
    take_fresh();
    vec4 sums[VALUE_STEPS]; // of rows 0 to 7, which are all there is
    [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++)
        sums[i] = vec4(0);
    float most = NOTHING, mass = 0.0, scale = score_scale(now) * 1.4426950408889634;
    [[dont_unroll]] for (uint first = from; first <= now; first += WARPS * 16u) {
        base = first + warp() * 16u;
#ifndef EMULATED
        if (base > now) break; // lanes of a warp alone
#endif
        if (base + 15u >= end) put_new_keys(base, end, k);
        vec4 s = scores(k) * scale;
        if (ROUNDS != 1u && first + WARPS * 16u <= now) {
            page = page_ahead;
            page_ahead = page_of(base + 2u * WARPS * 16u, end);
            load_keys(page, base + WARPS * 16u, end, k);
        }
        bvec4 there;
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            uint p = base + lane_column() + 4u * i;
            there[i] = p <= now && p >= seen;
        }
        s = mix(vec4(NOTHING), s, there);
        float before = most;
        most = max(most, four_max(max(max(s.x, s.y), max(s.z, s.w))));
        vec4 w = mix(vec4(0), exp2(s - most), there);
        float kept = exp2(before - most);
        mass = mass * kept + (w.x + w.y + (w.z + w.w));
        uvec4 a = uvec4(half_four(w), 0u, 0u);
        if (base + 15u >= end) put_new_values(base, end, v);
        [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++) {
            SUM sum = multiply(a, values_of(v, i / 4u, i % 4u), no_sum());
            sums[i] = fma(sums[i], vec4(kept), vec4(sum[0], sum[1], sum[2], sum[3]));
        }
        if (ROUNDS == 1u) break;
        if (first + WARPS * 16u <= now) load_values(page, base + WARPS * 16u, end, v);
    }
    // No workgroup of this dispatch reads what enters the cache.
    if (kv_has_room(now) && thread() < FOURS && thread() / (2u * SHARE_EIGHTS) == unit % SHARES) {
        uvec2 place = place_of(page_of(now, now), now);
        keep_four(cached_key(thread(), place), new_key(own_token(), thread()));
        keep_four(cached_value(thread() / 2u, place) + thread() % 2u * (4u * KV_BYTES), new_value(own_token(), thread()));
    }
    merge(most, four_sum(mass), sums); // in the pool, over the new tokens
}
