// The second phase of a layer: softmax of the scores, times the slice of the values, times the slice's columns of the
// output projection. The result and the carried residual are added to the residual after attention. Also brings the new
// key to the cache where it had to be normalised.
//
// Workgroup (key/value head, slice); a thread handles positions, two heads at a time, then 4 rows of the projection at a time.
// Codes32 of the projection come transposed as load_columns() says, their scales and biases packed, [group][row].

shared float parts[16u * WARPS]; // 2 heads of 8 features, per 32 lanes
shared float part_sum[2u * WARPS];
shared float part_most[2u * WARPS];

struct Values {
    uvec4 v[UNROLL * QUAD_WORDS];
};
struct Scores {
    uvec2 v[UNROLL];
};

// Values that are loaded for positions after `last` are not used. (Arrays sized by constants cannot be assigned whole.)
uint position_of(uint round, uint u, uint from, uint last) { return min(from + thread() + THREADS * (round * UNROLL + u), last); }

void load_values(uint round, uint from, uint last, inout Values v) {
    uint64_t cached = ADDRESS(VALUES);
    [[unroll]] for (uint u = 0; u < UNROLL; u++) {
        uint64_t eight = value_address(cached, kv_place(SEQUENCE, position_of(round, u, from, last)), kv_head(), slice());
        [[unroll]] for (uint i = 0; i < QUAD_WORDS; i++)
            v.v[u * QUAD_WORDS + i] = cached_eight(eight, i);
    }
}

void load_scores(uint64_t scores, uint round, uint from, uint last, inout Scores s) {
    [[unroll]] for (uint u = 0; u < UNROLL; u++)
        s.v[u] = Shared2(scores).v[position_of(round, u, from, last)];
}

// 4 rows of the output projection for the features of two heads.
struct Output {
    Codes32 codes[2];
    uvec4 scales_biases[2];
};

// The block of 8 features that a workgroup has of one of two heads.
uint output_block(uint pair, uint i) { return (kv_head() * HEADS + min(2u * pair + i, HEADS - 1u)) * SLICES + slice(); }

Output load_output(uint pair, uint quad) {
    Output w;
    [[unroll]] for (uint i = 0; i < 2u; i++) {
        uint block = output_block(pair, i);
        w.codes[i] = load_columns(ADDRESS(O), block, quad, O_FORMAT);
        w.scales_biases[i] = Weights4(ADDRESS(O_SCALES_BIASES)).v[block * 8u / GROUP_SIZE(O_FORMAT) * QUADS + quad];
    }
    return w;
}

// The first loads of a pair of heads besides accumulators. With POLL the phase before does it for the first pair, after
// its own polls.
Values values;
Output first_rows;

void prefetch_attention(uint pair, uint now) {
    first_rows = load_output(pair, min(thread(), QUADS - 1u));
    load_values(0u, seen_from(LAYER, now), REACH(now), values);
}

// Of two heads and the new key.
struct Squares {
    Accumulator v[3];
};

void load_squares(uint pair, inout Squares q) {
    uint first = kv_head() * (HEADS + 1u);
    q.v[0] = accumulator_load(state_squares(LAYER), first + 2u * pair);
    q.v[1] = accumulator_load(state_squares(LAYER), first + min(2u * pair + 1u, HEADS - 1u));
    q.v[2] = accumulator_load(state_squares(LAYER), first + HEADS);
}

#ifdef POLL
void wait_scores(uint64_t scores, uint round, uint from, uint now, inout Scores s) {
    uint spins = 0u;
    for (;;) {
        bool complete = true;
        [[unroll]] for (uint u = 0; u < UNROLL; u++)
            complete = complete && score_complete(s.v[u]);
        if (complete || give_up(spins)) return;
        load_scores(scores, round, from, now, s);
    }
}

void wait_squares(uint pair, inout Squares q) {
    uint spins = 0u;
    for (;;) {
        uint missing = 0u;
        [[unroll]] for (uint i = 0; i < 3u; i++)
            missing |= accumulator_missing(q.v[i], 2u * SLICES);
        if (missing == 0u || give_up(spins)) return;
        load_squares(pair, q);
    }
}
#endif

float inverse_rms(Accumulator squares) { return inversesqrt(fma(accumulator_value(squares), 1.0 / SQUARE_STEPS, pc.p.head_eps)); }

const float LEAST = -1e7; // of scores: after the last position

// The largest score of 32 lanes. It only shifts exponents, so sixteenths do, and integers are reduced fastest.
vec2 lanes_most(vec2 x) {
    ivec2 steps = ivec2(clamp(x, LEAST, -LEAST) * 16.0);
    subgroupBarrier(); // lanes that waited, each for its own, meet again: else some drivers give the largest score of a few of them
    return vec2(lane_max(steps.x), lane_max(steps.y)) * 0.0625;
}

// Two heads' sums of values, times a factor each.
void weigh(inout float o[16], vec2 by) {
    [[unroll]] for (uint i = 0; i < 8u; i++) {
        o[i] *= by.x;
        o[8u + i] *= by.y;
    }
}

// Softmax and values of two heads: lane l gets feature l & 7 of head (l >> 3) & 1.
float attention_pair(uint pair, uint now, out float key_scale) {
    uint last = REACH(now), from = seen_from(LAYER, now);
    uint64_t scores = scores_of(LAYER, kv_head(), pair);
    Scores parts_of;
    Squares squares;
#ifdef POLL
    uint spins = 0u, one = min(from + (thread() & ~31u) + (gl_WorkGroupID.x & 31u), now);
    while (!score_complete(Shared2(scores).v[one]) && !give_up(spins));
#endif
    load_scores(scores, 0u, from, last, parts_of);
    if (HEAD_NORM != 0u) load_squares(pair, squares);
#ifdef POLL
    // Rows that this dispatch wrote to the cache are not read from there.
    uint64_t new_value = state_new(LAYER) + gl_WorkGroupID.x * 64u + 32u;
    vec4 new_a = uintBitsToFloat(Shared4(new_value).v[0]), new_b = uintBitsToFloat(Shared4(new_value).v[1]);
    wait_scores(scores, 0u, from, now, parts_of);
    if (HEAD_NORM != 0u) wait_squares(pair, squares);
#endif
    vec2 scale = vec2(score_scale(now) * 1.4426950408889634);
    key_scale = 0.125; // of scores of the new key, which are none where heads are not normalised
    if (HEAD_NORM != 0u) {
        key_scale = inverse_rms(squares.v[2]);
        scale *= vec2(inverse_rms(squares.v[0]), inverse_rms(squares.v[1]));
    }
    vec2 most = vec2(LEAST), total = vec2(0);
    float o[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        o[i] = 0.0;
    for (uint round = 0; round < ROUNDS && round * UNROLL * THREADS <= now - from; round++) {
        Values next;
        Scores next_scores;
        bool more = round + 1u < ROUNDS && (round + 1u) * UNROLL * THREADS <= now - from;
        if (more) {
            load_values(round + 1u, from, now, next);
            load_scores(scores, round + 1u, from, now, next_scores);
        }
        vec2 s[UNROLL];
        vec2 peak = vec2(LEAST), shrink = vec2(1);
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint p = from + thread() + THREADS * (round * UNROLL + u);
            s[u] = score_value(parts_of.v[u]) * (p == now ? 8.0 * key_scale : 1.0);
            if (ROUNDS > 1u && p > now) s[u] = vec2(-1e30);
            if (ROUNDS > 1u || p <= now) peak = max(peak, s[u] * scale);
        }
        // In rounds each thread has a largest score of its own until the end: lanes need not be together before.
        if (ROUNDS == 1u) peak = lanes_most(peak);
        else {
            peak = max(peak, most);
            shrink = exp2(most - peak);
            weigh(o, shrink);
        }
        most = peak;
        vec2 sum = vec2(0);
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint p = from + thread() + THREADS * (round * UNROLL + u);
            if (ROUNDS == 1u && p > now) break; // rounds go on with weights of 0, so that positions overlap
            vec2 e = exp2(fma(s[u], scale, -most));
            sum += e;
            uvec4 w = values.v[u * QUAD_WORDS];
            vec4 a = quad_value(w.xy, w.zw), b = quad_value(w.zw, w.zw);
            if (DTYPE_KV == DTYPE_F32) b = uintBitsToFloat(values.v[u * QUAD_WORDS + QUAD_WORDS - 1u]);
#ifdef POLL
            if (p >= now) {
                a = new_a;
                b = new_b;
            }
#else
            if (p > now) a = b = vec4(0); // anything lies there
#endif
            [[unroll]] for (uint i = 0; i < 4u; i++) {
                o[i] = fma(e.x, a[i], o[i]);
                o[4u + i] = fma(e.x, b[i], o[4u + i]);
                o[8u + i] = fma(e.y, a[i], o[8u + i]);
                o[12u + i] = fma(e.y, b[i], o[12u + i]);
            }
        }
        total = ROUNDS > 1u ? fma(total, shrink, sum) : sum;
        if (more) {
            [[unroll]] for (uint u = 0; u < UNROLL * QUAD_WORDS; u++)
                values.v[u] = next.v[u];
            [[unroll]] for (uint u = 0; u < UNROLL; u++)
                parts_of.v[u] = next_scores.v[u];
#ifdef POLL
            wait_scores(scores, round + 1u, from, now, parts_of);
#endif
        }
    }
    subgroupBarrier(); // for lanes that left the loop one by one
    if (ROUNDS > 1u) {
        vec2 peak = lanes_most(most), shrink = exp2(most - peak);
        weigh(o, shrink);
        total *= shrink;
        most = peak;
    }
    // Sums over 32 lanes: lane l keeps value l / 2.
    bool up = (lane() & 16u) != 0u;
    [[unroll]] for (uint i = 0; i < 8u; i++)
        o[i] = (up ? o[8u + i] : o[i]) + lane_xor(up ? o[i] : o[8u + i], 16u);
    float mass = (up ? total.y : total.x) + lane_xor(up ? total.x : total.y, 16u);
    up = (lane() & 8u) != 0u;
    [[unroll]] for (uint i = 0; i < 4u; i++)
        o[i] = (up ? o[4u + i] : o[i]) + lane_xor(up ? o[i] : o[4u + i], 8u);
    up = (lane() & 4u) != 0u;
    [[unroll]] for (uint i = 0; i < 2u; i++)
        o[i] = (up ? o[2u + i] : o[i]) + lane_xor(up ? o[i] : o[2u + i], 4u);
    up = (lane() & 2u) != 0u;
    o[0] = (up ? o[1] : o[0]) + lane_xor(up ? o[0] : o[1], 2u);
    o[0] += lane_xor(o[0], 1u);
    [[unroll]] for (uint m = 1u; m < 16u; m <<= 1)
        mass += lane_xor(mass, m);
    if (pair > 0u) barrier(); // the parts of the pair before were read
    if ((lane() & 1u) == 0u) parts[(lane() >> 1) * WARPS + warp()] = o[0];
    if ((lane() & 15u) == 0u) {
        part_sum[(lane() >> 4) * WARPS + warp()] = mass;
        part_most[(lane() >> 4) * WARPS + warp()] = lane() == 0u ? most.x : most.y;
    }
    barrier();
    uint value = lane() & 15u, head = value >> 3;
    float peak = -1e9, sum = 0.0, x = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++)
        peak = max(peak, part_most[head * WARPS + i]);
    [[unroll]] for (uint i = 0; i < WARPS; i++) {
        float f = exp2(part_most[head * WARPS + i] - peak);
        sum = fma(f, part_sum[head * WARPS + i], sum);
        x = fma(f, parts[value * WARPS + i], x);
    }
    return x / sum;
}

void attention() {
    uint own = position(), now = kv_seen(own);
    Carry carry;
    IF_POLLING(take_carry(state_before(LAYER), carry));
    // This workgroup's part of the new key. Nothing may have to be waited for at the end of a dispatch.
    uint64_t new_key = state_new(LAYER) + (gl_WorkGroupID.x * 64u + (thread() & 7u) * 4u);
    uint key_bits;
    IF_BARRIERS(if (HEAD_NORM != 0u) key_bits = Shared1(new_key).v[0]);
    IF_BARRIERS(prefetch_attention(0u, now));
    vec4 rows[QUAD_ROUNDS];
    float key_scale;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        rows[n] = vec4(0);
    for (uint pair = 0; pair < PAIRS; pair++) {
        if (pair > 0u) prefetch_attention(pair, now);
        float attended = attention_pair(pair, now, key_scale);
        // A few threads would hold up the others where all still ask for the first inputs.
        IF_BARRIERS(if (pair == 0u) take_carry(state_before(LAYER), carry));
        Blocks q = blocks_make(attended, O_FORMAT);
        Block block[2];
        block[0] = block_get(q, 0u, O_FORMAT);
        block[1] = block_get(q, 1u, O_FORMAT);
        [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
            uint quad = thread() + n * THREADS;
            if (quad >= QUADS) continue;
            Output w = first_rows;
            if (n > 0u) w = load_output(pair, quad);
            [[unroll]] for (uint i = 0; i < 2u; i++)
                if (2u * pair + i < HEADS)
                    rows[n] += columns_dot(w.codes[i], w.scales_biases[i], block[i], O_FORMAT, output_block(pair, i));
        }
    }
    if (RESIDUAL_SCALE != ONE) [[unroll]]
        for (uint n = 0; n < QUAD_ROUNDS; n++) rows[n] *= uintBitsToFloat(RESIDUAL_SCALE);
    residual_add(state_after(LAYER), rows, carry);
    IF_POLLING(if (HEAD_NORM != 0u) key_bits = Shared1(new_key).v[0]);
    if (HEAD_NORM == 0u) return;
    float key = uintBitsToFloat(key_bits) * key_scale;
    if (CODED) {
        float second = lane_xor(key, 1u);
        uint word = kv_encode(vec4(key, second, lane_xor(key, 2u), lane_xor(second, 2u)));
        if (thread() < 8u && (thread() & 3u) == 0u) store_key_codes(ADDRESS(KEYS), thread() >> 2, own, word);
    } else if (thread() < 8u) store_key(ADDRESS(KEYS), thread() >> 2, own, thread() & 3u, key);
}
