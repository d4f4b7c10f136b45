// The first phase of a layer: y = x / rms(x) * w, and q, k, v = W y + b for a slice of a head. q and k are rotated by
// their position. v goes to the cache, and the slice's part of the product of q and k of every position to the scores.
//
// With HEAD_NORM, q and k are scaled by their own norm weights here. They are scaled by 1 / rms later, where their
// scores are read. Otherwise k goes to the cache too, and scores count from that of the new key, as softmax allows.
// Biases of keys, which may be large, then cancel as far as rotation lets them.
//
// Workgroup (key/value head, slice). The slice of q and k is features 4s to 4s + 3 and their partners half a head
// further, in the places of include/rope_place.glsl. That of v is features 8s to 8s + 7. 32 lanes make 4 rows at a time. A task is half of the slice of one of
// HEADS + 2 heads, with rows (first, partner, first, partner) for q and k. Scales and biases come packed,
// [workgroup][task][group][row].
// The cache lies as include/kv_address.glsl says.

const uint TYPES = HEADS + 2u;
const uint TASKS = 2u * TYPES;
const uint TASK_ROUNDS = (TASKS + WARPS - 1u) / WARPS;
const uint QKV_GROUPS = HIDDEN / GROUP_SIZE(QKV_FORMAT);

shared vec4 slice_of[(HEADS + 1u) * 2u]; // firsts, then partners, of each query head and of the key

// Row r of half a slice, as features are counted by pairs, and the feature that it is.
uint member_of(uint half_, uint r) { return (HEAD_DIM / 2u) * (r & 1u) + 4u * slice() + 2u * half_ + (r >> 1); }
uint feature_of(uint half_, uint r) {
    uint member = member_of(half_, r);
    return ROPE_DIMS == 0u ? member : 4u * rope_quad(member / 4u) + member % 4u;
}

// Feature of row r of a task in its head.
uint feature_of_task(uint task, uint r) {
    uint half_ = task & 1u;
    return task >> 1 <= HEADS ? feature_of(half_, r) : 8u * slice() + 4u * half_ + r;
}

// Bias of this lane's row of a task: those of all heads of q, then of k, then of v.
float load_bias(uint task) {
    if (QKV_BIAS == 0u) return 0.0;
    uint type = task >> 1, head = type < HEADS ? kv_head() * HEADS + type : type * KV_HEADS + kv_head();
    return load_float(ADDRESS(NORMS) + AT_QKV_BIAS, head * HEAD_DIM + feature_of_task(task, lane() >> 3), DTYPE_W);
}

struct TaskWeights {
    Codes32 codes[4];
    uvec4 scales_biases;
}; // four rows

TaskWeights load_task(uint task, uint chunk) {
    uint type = task >> 1;
    uint64_t codes = ADDRESS((type < HEADS ? Q : type == HEADS ? K : V));
    uint head = type < HEADS ? kv_head() * HEADS + type : kv_head();
    uint at = min(chunk, CHUNKS - 1u);
    TaskWeights w;
    [[unroll]] for (uint r = 0; r < 4u; r++)
        w.codes[r] = load_codes(codes, (head * HEAD_DIM + feature_of_task(task, r)) * CHUNKS + at, QKV_FORMAT);
    w.scales_biases =
        Weights4(ADDRESS(QKV_SCALES_BIASES)).v[(gl_WorkGroupID.x * TASKS + task) * QKV_GROUPS + at * 32u / GROUP_SIZE(QKV_FORMAT)];
    return w;
}

// Keys of positions: the slice's first features and their partners.
struct Keys {
    uvec2 first[UNROLL * QUAD_WORDS], partner[UNROLL * QUAD_WORDS];
};

// (Arrays sized by constants cannot be assigned whole.)
void load_keys(uint round, uint from, uint last, inout Keys k) {
    uint64_t cached = ADDRESS(KEYS);
    [[unroll]] for (uint u = 0; u < UNROLL; u++) {
        uint p = min(from + thread() + THREADS * (round * UNROLL + u), last);
        uvec2 place = kv_place(SEQUENCE, p);
        uint64_t first = key_address(cached, place, kv_head(), rope_quad(slice()));
        uint64_t partner = key_address(cached, place, kv_head(), rope_quad(ROPE_HALF + slice()));
        [[unroll]] for (uint i = 0; i < QUAD_WORDS; i++) {
            k.first[u * QUAD_WORDS + i] = cached_quad(first, i);
            k.partner[u * QUAD_WORDS + i] = cached_quad(partner, i);
        }
    }
}

void qkv() {
    // All that does not depend on the dispatch before is asked for first.
    TaskWeights w[TASK_ROUNDS];
    [[unroll]] for (uint n = 0; n < TASK_ROUNDS; n++)
        w[n] = load_task(min(warp() + n * WARPS, TASKS - 1u), lane());
    Rows rows;
    load_norm(ADDRESS(NORMS) + AT_NORM, rows);
    PartNorm part_norm;
    if (POST_NORM != 0u && LAYER > 0u) {
        load_part_norm(ADDRESS(NORMS), part_norm);
        if (IS_FIRST(0u)) load_carried(1u);
    }
    IF_BARRIERS(load_residual(state_before(LAYER), rows));
    uint own = position(), now = kv_seen(own), from = seen_from(LAYER, now);
    Keys keys;
    IF_POLLING(if (ROUNDS == 1u) load_keys(0u, from, now, keys));

    // The rope angle of this lane's row: the same feature for each of its tasks.
    uint r = lane() >> 3;
    uint feature = feature_of(warp() & 1u, r);
    vec2 rope_angle = F32x2s(state_rope_angles(rope_of(LAYER))).v[member_of(warp() & 1u, r) % (HEAD_DIM / 2u)];
    float q_weight = 1.0, k_weight = 1.0;
    if (HEAD_NORM != 0u) {
        q_weight = NORM_WEIGHT(load_float(ADDRESS(NORMS) + AT_Q_NORM, feature, DTYPE_W));
        k_weight = NORM_WEIGHT(load_float(ADDRESS(NORMS) + AT_K_NORM, feature, DTYPE_W));
    }
    float bias[TASK_ROUNDS];
    [[unroll]] for (uint n = 0; n < TASK_ROUNDS; n++)
        bias[n] = load_bias(min(warp() + n * WARPS, TASKS - 1u));

#ifdef POLL
    if (LAYER > 0u) clear_layer(LAYER - 1u, now); // while others are still adding
#endif
    IF_POLLING(load_residual(state_before(LAYER), rows));
    IF_POLLING(if (ROUNDS > 1u) load_keys(0u, from, now, keys)); // so many that they would hold up the polls
    IF_POLLING(if (ROUNDS == 1u) prefetch_attention(0u, now));
    if (POST_NORM != 0u) {
        if (LAYER > 0u) add_part(part_norm, rows);
        keep_residual(rows);
        if (IS_LAST(4u)) store_carried(0u);
    }
    norm_to_shared(rows, QKV_FORMAT);
    IF_BARRIERS(load_keys(0u, from, now, keys));
    float scale = norm_scale();
    [[unroll]] for (uint n = 0; n < TASK_ROUNDS; n++) {
        uint task = warp() + n * WARPS;
        bool there = task < TASKS;
        vec4 sums = vec4(0);
        TaskWeights now_w = w[n];
        uint matrix = task >> 1 < HEADS ? 0u : task >> 1 == HEADS ? 1u : 2u;
        [[unroll]] for (uint round = 0; round < CHUNK_ROUNDS; round++) {
            uint chunk = lane() + 32u * round;
            TaskWeights next;
            if (round + 1u < CHUNK_ROUNDS) next = load_task(min(task, TASKS - 1u), chunk + 32u);
            if (chunk < CHUNKS) {
                Chunk c = chunk_get(chunk);
                [[unroll]] for (uint i = 0; i < 4u; i++)
                    sums[i] += chunk_dot(now_w.codes[i], now_w.scales_biases[i], c, QKV_FORMAT, matrix);
            }
            if (round + 1u < CHUNK_ROUNDS) now_w = next;
        }
        float x = lane_sum4(sums.x, sums.y, sums.z, sums.w);
        x = QKV_BIAS != 0u ? fma(x, scale, bias[n]) : x * scale;
        uint type = task >> 1;
        float y = x;
        if (HEAD_NORM != 0u) {
            float square = fma(x, x, lane_xor(x * x, 8u));
            square += lane_xor(square, 16u);
            if (there && type <= HEADS && lane() == 0u)
                accumulator_add(state_squares(LAYER), kv_head() * (HEADS + 1u) + type,
                                accumulator_of(square * (SQUARE_STEPS / float(HEAD_DIM))));
            y *= type < HEADS ? q_weight : k_weight;
        } else note_lost(x);
        float partner = lane_xor(y, 8u);
        y = fma(y, rope_angle.x, partner * ((r & 1u) != 0u ? rope_angle.y : -rope_angle.y));
        if (HEAD_NORM == 0u && type == HEADS) y = rounded_as(y, DTYPE_KV); // as other keys are that it is compared with
        // The codes of four values: those of row 0 have them in their order.
        uint word;
        if (CODED) {
            float second = lane_xor(x, 8u);
            word = kv_encode(vec4(x, second, lane_xor(x, 16u), lane_xor(second, 16u)));
        }
        if (there && (lane() & 7u) == 0u) {
            if (type <= HEADS) {
                uint partner_ = r & 1u, at = 2u * (task & 1u) + (r >> 1);
                slice_of[2u * type + partner_][at] = y;
                if (type == HEADS) {
                    if (HEAD_NORM != 0u) Shared1(state_new(LAYER)).v[gl_WorkGroupID.x * 16u + 4u * partner_ + at] = floatBitsToUint(y);
                    else if (!CODED) store_key(ADDRESS(KEYS), partner_, own, at, y);
                }
            } else {
                uint at = 4u * (task & 1u) + r;
                uint64_t to = value_address(ADDRESS(VALUES), kv_place(SEQUENCE, own), kv_head(), slice());
                if (kv_has_room(own)) {
                    if (!CODED) store_float(to, at, DTYPE_KV, x);
                    else if (r == 0u) U32s(to).v[task & 1u] = word;
                }
#ifdef POLL
                float rounded = CODED ? kv_feature(word, 0u) : rounded_as(x, DTYPE_KV);
                Shared1(state_new(LAYER)).v[gl_WorkGroupID.x * 16u + 8u + at] = floatBitsToUint(rounded);
#endif
            }
        }
    }
    barrier();

    // Scores. The new key is not in the cache yet. Where it is not normalised either, an eighth of it keeps within the range.
    float part = HEAD_NORM != 0u ? 0.125 : 1.0;
    vec4 key_first = slice_of[2u * HEADS] * part, key_partner = slice_of[2u * HEADS + 1u] * part;
    if (CODED && HEAD_NORM == 0u) {
        uvec2 words = uvec2(kv_encode(key_first), kv_encode(key_partner));
        if (thread() < 2u) store_key_codes(ADDRESS(KEYS), thread(), own, thread() == 0u ? words.x : words.y);
        key_first = kv_decode(words.x); // as other keys are that it is compared with
        key_partner = kv_decode(words.y);
    }
    for (uint round = 0; round < ROUNDS && round * UNROLL * THREADS <= now - from; round++) {
        Keys next;
        bool more = round + 1u < ROUNDS && (round + 1u) * UNROLL * THREADS <= now - from;
        if (more) load_keys(round + 1u, from, now, next);
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint p = from + thread() + THREADS * (round * UNROLL + u);
            if (p > now) break;
            uint w = u * QUAD_WORDS, last = w + QUAD_WORDS - 1u;
            vec4 first = quad_value(keys.first[w], keys.first[last]), partner = quad_value(keys.partner[w], keys.partner[last]);
            if (p == now) {
                first = key_first;
                partner = key_partner;
            }
            if (HEAD_NORM == 0u) {
                first -= key_first;
                partner -= key_partner;
            }
            [[unroll]] for (uint pair = 0; pair < PAIRS; pair++) {
                vec2 s = vec2(0);
                [[unroll]] for (uint i = 0; i < 2u; i++) {
                    uint head = min(2u * pair + i, HEADS - 1u);
                    s[i] = dot_on(slice_of[2u * head + 1u], partner, dot_on(slice_of[2u * head], first, 0.0));
                }
                score_add(scores_of(LAYER, kv_head(), pair), p, s);
            }
        }
        if (more) [[unroll]]
            for (uint u = 0; u < UNROLL * QUAD_WORDS; u++) {
                keys.first[u] = next.first[u];
                keys.partner[u] = next.partner[u];
            }
    }
    IF_POLLING(if (ROUNDS > 1u) prefetch_attention(0u, now)); // after the keys, which would have to share
#if ACCUMULATORS != 2
    residual_clear(state_after(LAYER)); // of the layer before
#endif
}
