#version 460
// Gradients of attention, without a matrix of scores: probabilities are computed again from q, k and the stats of attention_stats.
//
//   p = exp(scale * q . k + mask - lse)    ds = scale * p * (cotangent . v - delta)
//
// attention_vjp_queries: out = dq, dq = sum over keys of ds . k. A workgroup has TILE queries of a head: batch * heads * ceil(q_len /
// TILE) of them.
// attention_vjp_keys (KEYS): out = dk, then dv; dk = sum over queries of ds . q, dv of p . cotangent. A workgroup has TILE keys of a kv
// head and goes through all heads that share it: batch * kv_heads * ceil(kv_len / TILE).

#define BUFFERS 8
#include "attention_vjp.glsl"

float lse_of(uint query) { return F32s(pc.address[6] + query_line(query) * 8u).v[0]; }
float delta_of(uint query) { return F32s(pc.address[6] + query_line(query) * 8u).v[1]; }

// The probability of a key for a query.
float probability(float product, uint query, uint key) {
    float score = masked(product * pc.p.scale, query, key);
    return score <= LOWEST ? 0.0 : exp(score - lse_of(query));
}

ADD_ROWS(add_to_first, first_out, HEAD_DIM)

#ifdef KEYS
ADD_ROWS(add_to_second, second_out, V_DIM)

float probabilities[DOWN * ALONG];

void add_queries(uint key, uint query) {
    multiply_rows(keys_at(key), DTYPE_KV, queries_at(query), DTYPE_Q, HEAD_DIM);
    [[unroll]] for (uint m = 0; m < DOWN; m++) {
        [[unroll]] for (uint n = 0; n < ALONG; n++) {
            uint i = line() + LINES * m, j = place() + 16u * n;
            float p = probability(sums[m * ALONG + n], query + j, key + i);
            probabilities[m * ALONG + n] = p;
            weights[i * PITCH + j] = p;
        }
    }
    add_to_second(cotangents_at(query), DTYPE_C);
    multiply_rows(values_at(key), DTYPE_KV, cotangents_at(query), DTYPE_C, V_DIM);
    [[unroll]] for (uint m = 0; m < DOWN; m++) {
        [[unroll]] for (uint n = 0; n < ALONG; n++) {
            uint j = place() + 16u * n;
            float p = probabilities[m * ALONG + n];
            float delta = delta_of(min(query + j, pc.p.q_len - 1u));
            weights[(line() + LINES * m) * PITCH + j] = p * (sums[m * ALONG + n] - delta) * pc.p.scale;
        }
    }
    add_to_first(queries_at(query), DTYPE_Q);
    barrier(); // the next tile writes weights
}

void main() {
    uint tiles = (pc.p.kv_len + TILE - 1u) / TILE, group = flat_workgroup();
    if (group >= pc.p.batch * pc.p.kv_heads * tiles) return;
    uint key = group % tiles * TILE, heads = pc.p.heads / pc.p.kv_heads;
    kv_head = group / tiles % pc.p.kv_heads;
    set_batch(group / tiles / pc.p.kv_heads);
    CLEAR(first_out, HEAD_DIM)
    CLEAR(second_out, V_DIM)
    // Earlier queries see none of the keys.
    uint start = MASK_MODE == MASK_CAUSAL ? uint(max(int(key + pc.p.q_len) - int(kv_length), 0)) : 0u;
    if (key < kv_length) {
        for (head = kv_head * heads; head < (kv_head + 1u) * heads; head++) {
            for (uint query = start; query < pc.p.q_len; query += TILE) add_queries(key, query);
        }
    }
    uint count = min(TILE, pc.p.kv_len - key);
    uint64_t row = (uint64_t(batch) * pc.p.kv_heads + kv_head) * pc.p.kv_len + key;
    uint64_t values = uint64_t(pc.p.batch) * pc.p.kv_heads * pc.p.kv_len * (HEAD_DIM * DTYPE_BYTES(DTYPE_KV));
    uint64_t dk = pc.address[7] + row * (HEAD_DIM * DTYPE_BYTES(DTYPE_KV));
    uint64_t dv = pc.address[7] + values + row * (V_DIM * DTYPE_BYTES(DTYPE_KV));
    STORE_ROWS(first_out, HEAD_DIM, dk, DTYPE_KV, count)
    STORE_ROWS(second_out, V_DIM, dv, DTYPE_KV, count)
}
#else
float probabilities[DOWN * ALONG];

void main() {
    uint tiles = (pc.p.q_len + TILE - 1u) / TILE, group = flat_workgroup();
    if (group >= pc.p.batch * pc.p.heads * tiles) return;
    uint query = group % tiles * TILE;
    head = group / tiles % pc.p.heads;
    set_batch(group / tiles / pc.p.heads);
    kv_head = head / (pc.p.heads / pc.p.kv_heads);
    CLEAR(first_out, HEAD_DIM)
    uint end = end_of_keys(query);
    for (uint key = 0; key < end; key += TILE) {
        multiply_rows(queries_at(query), DTYPE_Q, keys_at(key), DTYPE_KV, HEAD_DIM);
        [[unroll]] for (uint m = 0; m < DOWN; m++) {
            [[unroll]] for (uint n = 0; n < ALONG; n++)
                probabilities[m * ALONG + n] = probability(sums[m * ALONG + n], query + line() + LINES * m, key + place() + 16u * n);
        }
        multiply_rows(cotangents_at(query), DTYPE_C, values_at(key), DTYPE_KV, V_DIM);
        [[unroll]] for (uint m = 0; m < DOWN; m++) {
            uint i = line() + LINES * m;
            float delta = delta_of(min(query + i, pc.p.q_len - 1u));
            [[unroll]] for (uint n = 0; n < ALONG; n++)
                weights[i * PITCH + place() + 16u * n] = probabilities[m * ALONG + n] * (sums[m * ALONG + n] - delta) * pc.p.scale;
        }
        add_to_first(keys_at(key), DTYPE_KV);
        barrier(); // the next tile writes weights
    }
    uint64_t to = pc.address[7] + query_line(query) * (HEAD_DIM * DTYPE_BYTES(DTYPE_Q));
    STORE_ROWS(first_out, HEAD_DIM, to, DTYPE_Q, min(TILE, pc.p.q_len - query))
}
#endif
