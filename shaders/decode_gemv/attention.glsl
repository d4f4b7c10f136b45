// Attention of a key/value head over a part of the positions, which workgroups share (split attention). The part goes
// by tiles with a running softmax. Eight groups of warps make the scores of as many groups of features, lanes being
// positions. All warps add them up. Then warps own 8 features of the values each, or twice 8, lanes being positions again. That is
// how the cache lies.

#include "include/kv_address.glsl"

const uint FOURS = HEAD_DIM / 4u, EIGHTS = HEAD_DIM / 8u;
const uint ROUND = 32u * WARPS / FEATURE_GROUPS, TILE_ROUNDS = TILE / ROUND; // positions of a lane of keys
const uint GROUP_FOURS = FOURS / FEATURE_GROUPS;
const uint STRIPS = EIGHTS > WARPS ? 1u : WARPS / EIGHTS, TILE_STRIPS = TILE / (32u * STRIPS); // of a lane of values
const uint OWN_EIGHTS = EIGHTS > WARPS ? EIGHTS / WARPS : 1u;                                  // of a warp
const uint EARLY_STRIPS = UNROLL > 1u ? 0u : TILE_STRIPS; // that are asked for with the keys: registers serve either of many
const float NOTHING = -1e30;
const uint LANES_OF_PART = SUBGROUP, LANE_PARTS = TILE / LANES_OF_PART;

// q of each head, k, v.
vec4 own(uint i) { return uintBitsToFloat(vector[SCRATCH / 4u + i]); }

shared float part_most[OWN_HEADS * LANE_PARTS], part_mass[OWN_HEADS * LANE_PARTS];

// A thread's part of a tile.
uvec2 tile_keys[TILE_ROUNDS * GROUP_FOURS * QUAD_WORDS];
uvec4 tile_values[TILE_STRIPS * OWN_EIGHTS * QUAD_WORDS];

uint attention_group() { return workgroup() / PARTS; } // of OWN_HEADS query heads
uint attention_head() { return attention_group() / HEAD_SPLIT; }
uint attention_part() { return workgroup() % PARTS; }
bool attends() { return workgroup() < KV_HEADS * HEAD_SPLIT * PARTS; }

// Positions of a part of those that a token sees, and the first of them.
uint part_size(uint now) { return (now - seen_from(LAYER, now)) / PARTS + 1u; }
uint part_first(uint now) { return seen_from(LAYER, now) + attention_part() * part_size(now); }
uint part_count(uint now) {
    uint first = part_first(now);
    return !attends() || first > now ? 0u : min(part_size(now), now + 1u - first);
}

uint key_place(uint round) { return round * ROUND + warp() % (WARPS / FEATURE_GROUPS) * 32u + lane(); }
uint key_four(uint i) { return warp() / (WARPS / FEATURE_GROUPS) * GROUP_FOURS + i; }
uint value_place(uint round) { return (round * STRIPS + warp() / EIGHTS) * 32u + lane(); }
uint value_eight(uint n) { return warp() % EIGHTS + n * WARPS; }

// `base` is the first of the tile's positions among those of the part.
void load_keys(uint now, uint base) {
    uint first = part_first(now) + base, count = part_count(now);
    uint64_t cached = ADDRESS(KEYS);
    [[unroll]] for (uint r = 0; r < TILE_ROUNDS; r++) {
        [[unroll]] for (uint i = 0; i < GROUP_FOURS * QUAD_WORDS; i++)
            tile_keys[r * GROUP_FOURS * QUAD_WORDS + i] = uvec2(0); // not to be kept from the layer before
        if (base + key_place(r) >= count) continue;
        uvec2 place = kv_place(SEQUENCE, first + key_place(r));
        [[unroll]] for (uint i = 0; i < GROUP_FOURS; i++) {
            uint64_t four = key_address(cached, place, attention_head(), key_four(i));
            [[unroll]] for (uint w = 0; w < QUAD_WORDS; w++)
                tile_keys[(r * GROUP_FOURS + i) * QUAD_WORDS + w] = cached_quad(four, w);
        }
    }
}

// Of strips `from` to `to` - 1.
void load_values(uint now, uint base, uint from_strip, uint to_strip) {
    uint first = part_first(now) + base, count = part_count(now);
    uint64_t cached = ADDRESS(VALUES);
    [[unroll]] for (uint r = from_strip; r < to_strip; r++) {
        [[unroll]] for (uint w = 0; w < OWN_EIGHTS * QUAD_WORDS; w++)
            tile_values[r * OWN_EIGHTS * QUAD_WORDS + w] = uvec4(0);
        if (base + value_place(r) >= count) continue;
        uvec2 place = kv_place(SEQUENCE, first + value_place(r));
        [[unroll]] for (uint n = 0; n < OWN_EIGHTS; n++) {
            uint64_t eight = value_address(cached, place, attention_head(), value_eight(n));
            [[unroll]] for (uint w = 0; w < QUAD_WORDS; w++)
                tile_values[(r * OWN_EIGHTS + n) * QUAD_WORDS + w] = cached_eight(eight, w);
        }
    }
}

// Brings four neighbouring features to the cache, which are rounded as it does.
void store_four(uint64_t at, vec4 x) {
    if (CODED) U32s(at).v[0] = kv_encode(x);
    else if (DTYPE_KV == DTYPE_F32) U32x4s(at).v[0] = floatBitsToUint(x);
    else if (DTYPE_KV == DTYPE_F16) U32x2s(at).v[0] = uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
    else {
        uvec4 w = floatBitsToUint(x);
        U32x2s(at).v[0] = uvec2(w.x >> 16 | w.y, w.z >> 16 | w.w);
    }
}

// The value of another member of a head, which may be in the next warp: heads of 256 features have two.
float member_xor(float x, uint mask) {
    if (mask < 32u) return lane_xor(x, mask);
    barrier();
    scratch_put(thread(), x);
    barrier();
    return scratch_get(thread() ^ mask);
}

// The token's own q, k and v: normalised, rotated, rounded as the cache does. Ends with a barrier.
void take_own(uint now) {
    const uint all = (OWN_HEADS + 2u) * FOURS, rounds = (all + THREADS - 1u) / THREADS;
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint i = min(thread() + n * THREADS, all - 1u), type = i / FOURS, members = i % FOURS, four = rope_quad(members);
        uint head = type < OWN_HEADS ? attention_group() * OWN_HEADS + type : KV_HEADS * (HEADS + type - OWN_HEADS) + attention_head();
        vec4 weight = vec4(1);
        if (HEAD_NORM != 0u) weight = load_quad(ADDRESS(NORMS) + (type < OWN_HEADS ? AT_Q_NORM : AT_K_NORM), four, DTYPE_W);
        uint64_t rope_angles = state_rope_angles(rope_of(LAYER)) + members % (FOURS / 2u) * 32u;
        vec4 first = uintBitsToFloat(Weights4(rope_angles).v[0]), second = uintBitsToFloat(Weights4(rope_angles).v[1]);
        vec4 x = word_value(wait_quad(AT_QKV + (head * HEAD_DIM + 4u * four) * 4u, OWN_TAG));
        IF_POLLING(subgroupBarrier()); // lanes that waited, each for its own, meet again
        vec4 y = x;
        if (HEAD_NORM != 0u) {
            float squares = dot_on(x, x, 0.0);
            [[unroll]] for (uint m = 1u; m < FOURS; m <<= 1)
                squares += member_xor(squares, m);
            y = x * weight * inversesqrt(fma(squares, 1.0 / float(HEAD_DIM), pc.p.head_eps));
        }
        vec4 partner;
        [[unroll]] for (uint j = 0; j < 4u; j++)
            partner[j] = member_xor(y[j], FOURS / 2u);
        vec4 sines = vec4(first.y, first.w, second.y, second.w) * (members < FOURS / 2u ? -1.0 : 1.0);
        y = fma(y, vec4(first.x, first.z, second.x, second.z), partner * sines);
        if (thread() + n * THREADS >= all) continue;
        if (type < OWN_HEADS) y *= score_scale(now) * 1.4426950408889634;
        else {
            if (type > OWN_HEADS) y = x;
            if (CODED) y = kv_decode(kv_encode(y));
            [[unroll]] for (uint j = 0; j < 4u; j++)
                y[j] = rounded_as(y[j], DTYPE_KV);
            bool stores = attention_group() % HEAD_SPLIT == 0u && (now - seen_from(LAYER, now)) / part_size(now) == attention_part();
            if (stores && kv_has_room(now)) {
                uvec2 place = kv_place(SEQUENCE, now);
                uint64_t key = key_address(ADDRESS(KEYS), place, attention_head(), four);
                uint64_t eight = value_address(ADDRESS(VALUES), place, attention_head(), four / 2u);
                store_four(type == OWN_HEADS ? key : eight + four % 2u * (4u * KV_BYTES), y);
            }
        }
        vector[SCRATCH / 4u + (ROPE_DIMS == 0u ? i : type * FOURS + four)] = floatBitsToUint(y);
    }
    barrier();
}

void attention() {
    uint now = position(), count = part_count(now), first = part_first(now);
    const uint SCORES = OWN_HEADS * TILE, rounds = (SCORES + THREADS - 1u) / THREADS;
    float top[OWN_HEADS], mass[OWN_HEADS], sum[8u * OWN_EIGHTS * OWN_HEADS];
    [[unroll]] for (uint h = 0; h < OWN_HEADS; h++) {
        top[h] = NOTHING;
        mass[h] = 0.0;
        if (HAS_SINKS && attention_part() == 0u) { // which has a position in any case
            top[h] = extra(AT_SINKS, attention_group() * OWN_HEADS + h) * 1.4426950408889634;
            mass[h] = 1.0;
        }
    }
    [[unroll]] for (uint i = 0; i < 8u * OWN_EIGHTS * OWN_HEADS; i++)
        sum[i] = 0.0;
    [[dont_unroll]] for (uint base = 0; base < count; base += TILE) {
        load_keys(now, base);
        load_values(now, base, 0u, EARLY_STRIPS);
        if (base == 0u) take_own(now); // while they are on their way
        [[unroll]] for (uint r = 0; r < TILE_ROUNDS; r++) {
            float s[OWN_HEADS];
            [[unroll]] for (uint h = 0; h < OWN_HEADS; h++)
                s[h] = 0.0;
            bool is_own = first + base + key_place(r) == now;
            [[unroll]] for (uint i = 0; i < GROUP_FOURS; i++) {
                uint w = (r * GROUP_FOURS + i) * QUAD_WORDS;
                vec4 k = quad_value(tile_keys[w], tile_keys[w + QUAD_WORDS - 1u]);
                if (is_own) k = own(OWN_HEADS * FOURS + key_four(i));
                [[unroll]] for (uint h = 0; h < OWN_HEADS; h++)
                    s[h] = dot_on(own(h * FOURS + key_four(i)), k, s[h]);
            }
            [[unroll]] for (uint h = 0; h < OWN_HEADS; h++)
                scratch_put((warp() / (WARPS / FEATURE_GROUPS) * OWN_HEADS + h) * TILE + key_place(r), s[h]);
        }
        load_values(now, base, EARLY_STRIPS, TILE_STRIPS);
        barrier();
        float s[rounds];
        [[unroll]] for (uint n = 0; n < rounds; n++) {
            uint i = min(thread() + n * THREADS, SCORES - 1u);
            s[n] = 0.0;
            [[unroll]] for (uint g = 0; g < FEATURE_GROUPS; g++)
                s[n] += scratch_get(g * SCORES + i);
            if (base + i % TILE >= count) s[n] = NOTHING;
            float most = s[n];
            [[unroll]] for (uint m = 1u; m < LANES_OF_PART; m <<= 1)
                most = max(most, subgroupShuffleXor(most, m));
            if (thread() + n * THREADS < SCORES && thread() % LANES_OF_PART == 0u) part_most[i / LANES_OF_PART] = most;
        }
        barrier();
        float shrink[OWN_HEADS];
        [[unroll]] for (uint h = 0; h < OWN_HEADS; h++) {
            float before = top[h];
            [[unroll]] for (uint i = 0; i < LANE_PARTS; i++)
                top[h] = max(top[h], part_most[h * LANE_PARTS + i]);
            shrink[h] = exp2(before - top[h]);
        }
        [[unroll]] for (uint n = 0; n < rounds; n++) {
            uint i = min(thread() + n * THREADS, SCORES - 1u);
            float peak = top[0];
            [[unroll]] for (uint h = 1; h < OWN_HEADS; h++)
                if (i / TILE == h) peak = top[h];
            float e = exp2(s[n] - peak), total = e;
            if (thread() + n * THREADS < SCORES) scratch_put(FEATURE_GROUPS * SCORES + i, e);
            [[unroll]] for (uint m = 1u; m < LANES_OF_PART; m <<= 1)
                total += subgroupShuffleXor(total, m);
            if (thread() + n * THREADS < SCORES && thread() % LANES_OF_PART == 0u) part_mass[i / LANES_OF_PART] = total;
        }
        barrier();
        [[unroll]] for (uint h = 0; h < OWN_HEADS; h++) {
            float total = 0.0;
            [[unroll]] for (uint i = 0; i < LANE_PARTS; i++)
                total += part_mass[h * LANE_PARTS + i];
            mass[h] = fma(mass[h], shrink[h], total);
            [[unroll]] for (uint i = 0; i < 8u * OWN_EIGHTS; i++)
                sum[8u * OWN_EIGHTS * h + i] *= shrink[h];
        }
        [[unroll]] for (uint r = 0; r < TILE_STRIPS; r++) {
            uint place = value_place(r);
            if (base + place >= count) continue;
            [[unroll]] for (uint n = 0; n < OWN_EIGHTS; n++) {
                uint at = (r * OWN_EIGHTS + n) * QUAD_WORDS;
                uvec4 w = tile_values[at];
                vec4 a = quad_value(w.xy, w.zw), b = quad_value(w.zw, w.zw);
                if (DTYPE_KV == DTYPE_F32) b = uintBitsToFloat(tile_values[at + QUAD_WORDS - 1u]);
                if (first + base + place == now) {
                    a = own((OWN_HEADS + 1u) * FOURS + 2u * value_eight(n));
                    b = own((OWN_HEADS + 1u) * FOURS + 2u * value_eight(n) + 1u);
                }
                [[unroll]] for (uint h = 0; h < OWN_HEADS; h++) {
                    float e = scratch_get(FEATURE_GROUPS * SCORES + h * TILE + place);
                    uint to = 8u * (OWN_EIGHTS * h + n);
                    [[unroll]] for (uint i = 0; i < 4u; i++) {
                        sum[to + i] = fma(e, a[i], sum[to + i]);
                        sum[to + 4u + i] = fma(e, b[i], sum[to + 4u + i]);
                    }
                }
            }
        }
    }
    [[unroll]] for (uint n = 0; n < OWN_HEADS * OWN_EIGHTS; n++) {
        float of_eight[8];
        [[unroll]] for (uint i = 0; i < 8u; i++)
            of_eight[i] = sum[8u * n + i];
        float x = lane_sum8(of_eight);
        uint at = (n / OWN_EIGHTS * STRIPS + warp() / EIGHTS) * HEAD_DIM + value_eight(n % OWN_EIGHTS) * 8u;
        if (lane() % 4u == 0u) scratch_put(at + lane() / 4u, x);
    }
    barrier();
    for (uint i = thread(); i < OWN_HEADS * HEAD_DIM; i += THREADS) {
        uint head = i / HEAD_DIM, at = attention_group() * OWN_HEADS + head;
        float x = 0.0, total = mass[0], peak = top[0];
        [[unroll]] for (uint strip = 0; strip < STRIPS; strip++)
            x += scratch_get((head * STRIPS + strip) * HEAD_DIM + i % HEAD_DIM);
        [[unroll]] for (uint h = 1; h < OWN_HEADS; h++)
            if (head == h) {
                total = mass[h];
                peak = top[h];
            }
        word_store(AT_ATTENDED_PARTS + (attention_part() * ALL_Q + at * HEAD_DIM + i % HEAD_DIM) * 4u, count > 0u ? x / total : 0.0,
                   OWN_TAG);
        if (i % HEAD_DIM == 0u)
            word_store(AT_MASS_PARTS + (attention_part() * KV_HEADS * HEADS + at) * 4u, count > 0u ? peak + log2(total) : NOTHING, OWN_TAG);
    }
}

// The factor of an attended feature, which is the sigmoid of its gate.
float gate_value(uint word) { return 1.0 / (1.0 + exp(-word_value(word))); }
vec4 gate_value(uvec4 words) { return vec4(gate_value(words.x), gate_value(words.y), gate_value(words.z), gate_value(words.w)); }

// ---- parts ------------------------------------------------------------------------------------------------------------------

// A workgroup merges some features of a key/value head, one to as many threads as there are parts.
void merge() {
    const uint features = ALL_Q / GRID, all = features * PARTS;
    uint first = attention_group() * OWN_HEADS * HEAD_DIM + attention_part() * features;
    for (uint i = thread(); i < all; i += THREADS) {
        uint part = i / features, feature = first + i % features;
        uint64_t values = state() + (AT_ATTENDED_PARTS + (part * ALL_Q + feature) * 4u);
        uint64_t masses = state() + (AT_MASS_PARTS + (part * KV_HEADS * HEADS + feature / HEAD_DIM) * 4u);
        uint value, mass;
        POLL_ALL({
            value = Shared1(values).v[0];
            mass = Shared1(masses).v[0];
            missing = (((value ^ OWN_TAG) | (mass ^ OWN_TAG)) & 3u) != 0u;
        })
        scratch_put(i, word_value(value));
        scratch_put(all + i, word_value(mass));
    }
    barrier();
    if (thread() >= features) return;
    float top = NOTHING, total = 0.0, x = 0.0;
    for (uint part = 0; part < PARTS; part++) top = max(top, scratch_get(all + part * features + thread()));
    for (uint part = 0; part < PARTS; part++) {
        float e = exp2(scratch_get(all + part * features + thread()) - top);
        total += e;
        x = fma(e, scratch_get(part * features + thread()), x);
    }
    x /= total;
    if (GATED != 0u) x *= gate_value(wait_word(AT_GATES + (first + thread()) * 4u, OWN_TAG));
    word_store(AT_ATTENDED + (first + thread()) * 4u, x, OWN_TAG);
}

// Eight neighbouring features of the output of attention, once they are there: if parts are few, their reader merges them.
void attended_eight(uint eight, out vec4 x, out vec4 y) {
    uvec4 a[PARTS > 2u ? 1u : PARTS], b[PARTS > 2u ? 1u : PARTS], gates[2];
    uint masses[PARTS > 2u ? 1u : PARTS];
    if (PARTS > 2u) {
        uint64_t words = state() + (AT_ATTENDED + 32u * eight);
        POLL_ALL({
            a[0] = Shared4(words).v[0];
            b[0] = Shared4(words).v[1];
            missing = (words_missing(a[0], OWN_TAG) | words_missing(b[0], OWN_TAG)) != 0u;
        })
        IF_POLLING(subgroupBarrier());
        x = word_value(a[0]);
        y = word_value(b[0]);
        return;
    }
    POLL_ALL([[unroll]] for (uint part = 0; part < PARTS; part++) {
        uint64_t words = state() + (AT_ATTENDED_PARTS + (part * ALL_Q + 8u * eight) * 4u);
        a[part] = Shared4(words).v[0];
        b[part] = Shared4(words).v[1];
        masses[part] = Shared1(state() + (AT_MASS_PARTS + (part * KV_HEADS * HEADS + 8u * eight / HEAD_DIM) * 4u)).v[0];
        uvec4 w = (a[part] ^ OWN_TAG) | (b[part] ^ OWN_TAG);
        if (GATED != 0u && part == 0u) {
            gates[0] = Shared4(state() + (AT_GATES + 32u * eight)).v[0];
            gates[1] = Shared4(state() + (AT_GATES + 32u * eight)).v[1];
            w |= (gates[0] ^ OWN_TAG) | (gates[1] ^ OWN_TAG);
        }
        if (((w.x | w.y | w.z | w.w | (masses[part] ^ OWN_TAG)) & 3u) != 0u) missing = true;
    })
    IF_POLLING(subgroupBarrier());
    float top = NOTHING, total = 0.0, mass[PARTS];
    [[unroll]] for (uint part = 0; part < PARTS; part++) {
        mass[part] = word_value(masses[part]);
        top = max(top, mass[part]);
    }
    x = y = vec4(0);
    [[unroll]] for (uint part = 0; part < PARTS; part++) {
        float e = exp2(mass[part] - top);
        total += e;
        x = fma(vec4(e), word_value(a[part]), x);
        y = fma(vec4(e), word_value(b[part]), y);
    }
    x /= total;
    y /= total;
    if (GATED != 0u) {
        x *= gate_value(gates[0]);
        y *= gate_value(gates[1]);
    }
}

// The output of attention, in shared memory.
void attended_to_vector() {
    if (PARTS > 2u) {
        attended_values(AT_ATTENDED, OWN_TAG);
        return;
    }
    const uint eights = ALL_Q / 8u, rounds = (eights + THREADS - 1u) / THREADS;
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = min(thread() + n * THREADS, eights - 1u);
        vec4 x, y;
        attended_eight(eight, x, y);
        quantize(eight, thread() + n * THREADS < eights, x, y, O_FORMAT);
    }
    barrier();
}
