// Gradients of attention without a matrix of scores. Probabilities are computed again from q, k and the statistics that
// attention_stats keeps of each query row. These are the log of the sum of exponentials and the dot product of the
// result with its cotangent.
//
//   p = exp(scale * q . k + mask - lse)    ds = scale * p * (cotangent . v - delta)
//   attention_vjp_queries  dq = ds . k          a block is 16 query rows of a kv head, which walk over pieces of 32 keys
//   attention_vjp_keys     dk = ds . q, dv = p . cotangent, one behind the other; a block is 16 keys, which walk over pieces of queries
//
// Every sum is made in one block, in the order of the keys or queries. See shaders/ops/attention/attention_vjp.glsl.

#include "../../../shaders/include/math/math.h"
#include "attention/attention_tiles.h"
#include "attention/kv_address.h"

typedef struct AttentionVjpPush Push;

// Rows of an array that neighbour each other.
typedef struct Rows {
    const uint8_t *first;
    ptrdiff_t stride; // elements
    uint32_t dim, dtype;
} Rows;

// A block's place.
typedef struct Task {
    const Call *call;
    const Push *p;
    uint32_t batch, kv_head, length, dim, v_dim;
} Task;

typedef float Block[ROWS][STRIDE];
typedef float Scratch[KEYS][STRIDE];

static uint32_t length_of(const Call *call, const Push *p, uint32_t batch) {
    uint32_t has_lengths = call->spec[8];
    if (!has_lengths) return p->kv_len;
    int32_t length = ((const int32_t *)call->buffer[4])[has_lengths == 2 ? batch : 0];
    return length < 0 ? 0 : min_u32((uint32_t)length, p->kv_len);
}

static Task task_of(const Call *call, uint32_t place) {
    PUSH(AttentionVjpPush);
    uint32_t batch = place / p->kv_heads;
    return (Task){call, p, batch, place % p->kv_heads, length_of(call, p, batch), call->spec[1], call->spec[2]};
}

static Rows kv_rows(const Task *t, const uint8_t *data, const int32_t *strides, uint32_t first, uint32_t dim) {
    uint32_t dtype = t->call->spec[4];
    return (Rows){kv_address(data, strides, t->batch, t->kv_head, first, dtype), strides[2], dim, dtype};
}
static Rows rows_at(const uint8_t *data, ptrdiff_t element, ptrdiff_t stride, uint32_t dim, uint32_t dtype) {
    return (Rows){data + element * (ptrdiff_t)DTYPE_BYTES(dtype), stride, dim, dtype};
}

// Rows of k and v of the block's kv head, of q and the cotangent of a head, from `first` on.
static Rows keys_of(const Task *t, uint32_t first) { return kv_rows(t, t->call->buffer[1], t->p->k_strides, first, t->dim); }
static Rows values_of(const Task *t, uint32_t first) { return kv_rows(t, t->call->buffer[2], t->p->v_strides, first, t->v_dim); }
static size_t line_of(const Task *t, uint32_t head, uint32_t query) {
    return ((size_t)t->batch * t->p->heads + head) * t->p->q_len + query;
}
static Rows queries_of(const Task *t, uint32_t head, uint32_t first) {
    return rows_at(t->call->buffer[0], (ptrdiff_t)(line_of(t, head, first) * t->dim), t->dim, t->dim, t->call->spec[3]);
}
static Rows cotangents_of(const Task *t, uint32_t head, uint32_t first) {
    return rows_at(t->call->buffer[5], (ptrdiff_t)(line_of(t, head, first) * t->v_dim), t->v_dim, t->v_dim, t->call->spec[5]);
}

static void load_row(float *to, Rows r, uint32_t row) {
    load_floats(to, r.first + (ptrdiff_t)row * r.stride * (ptrdiff_t)DTYPE_BYTES(r.dtype), 0, r.dim, r.dtype);
    for (uint32_t d = r.dim; d < padded(r.dim); d++) to[d] = 0;
}

// A piece of `count` rows, filled up with zeros to a multiple of 4: in place where they are whole and float32.
static Piece piece_of(Rows r, uint32_t count, Scratch scratch) {
    if (r.dtype == DTYPE_F32 && r.dim % 4 == 0 && count == KEYS) return (Piece){(const float *)r.first, r.stride, KEYS};
    uint32_t keys = padded(count);
    for (uint32_t j = 0; j < keys; j++) {
        if (j < count) load_row(scratch[j], r, j);
        else __builtin_memset(scratch[j], 0, sizeof scratch[j]);
    }
    return (Piece){scratch[0], STRIDE, keys};
}

// ---- blocks of queries ----------------------------------------------------------------------------------------------

// Query rows of a kv head: its query heads for the first query, then for the next.
typedef struct Queries {
    uint32_t rows, end; // end: of the keys that any of them sees
    uint32_t head[ROWS], query[ROWS];
} Queries;

static uint32_t query_rows(const Push *p) { return p->kv_heads ? p->heads / p->kv_heads * p->q_len : 0; }

static uint32_t query_chunks(const Call *call) {
    PUSH(AttentionVjpPush);
    return p->batch * p->kv_heads * ((query_rows(p) + ROWS - 1) / ROWS);
}

static Queries queries_in(const Task *t, uint32_t first) {
    uint32_t group = t->p->heads / t->p->kv_heads;
    Queries b = {.rows = min_u32(ROWS, query_rows(t->p) - first), .end = t->length};
    for (uint32_t i = 0; i < b.rows; i++) {
        b.head[i] = t->kv_head * group + (first + i) % group;
        b.query[i] = (first + i) / group;
    }
    int64_t end = (int64_t)b.query[b.rows - 1] + t->length - t->p->q_len + 1;
    if (t->call->spec[6] == MASK_CAUSAL && end < b.end) b.end = end < 0 ? 0 : (uint32_t)end;
    return b;
}

static Place place_of(const Task *t, const Queries *b, uint32_t i) { return (Place){t->batch, b->head[i], b->query[i]}; }

// The queries of a block, scaled.
static void load_queries(const Task *t, const Queries *b, Block q) {
    __builtin_memset(q, 0, sizeof(Block));
    for (uint32_t i = 0; i < b->rows; i++) {
        load_row(q[i], queries_of(t, b->head[i], b->query[i]), 0);
        for (uint32_t d = 0; d < t->dim; d++) q[i][d] *= t->p->scale;
    }
}

static float dot(const float *a, const float *b, uint32_t n) {
    f4 sum = {0};
    for (uint32_t i = 0; i < n; i += 4) sum = f4_fma(f4_load(a + i), f4_load(b + i), sum);
    return f4_sum(sum);
}

uint32_t chunks_attention_stats(const Call *call) { return query_chunks(call); }

void k_attention_stats(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(AttentionVjpPush);
    Block q;
    Scratch scratch;
    float scores[ROWS][KEYS];
    uint32_t blocks = (query_rows(p) + ROWS - 1) / ROWS;
    for (; chunk < last; chunk++) {
        Task t = task_of(call, chunk / blocks);
        Queries b = queries_in(&t, chunk % blocks * ROWS);
        float most[ROWS], sum[ROWS] = {0};
        for (uint32_t i = 0; i < ROWS; i++) most[i] = NEGATIVE_INFINITY;
        load_queries(&t, &b, q);
        for (uint32_t first = 0; first < b.end; first += KEYS) {
            uint32_t count = min_u32(KEYS, b.end - first);
            score_rows(q, b.rows, piece_of(keys_of(&t, first), count, scratch), t.dim, scores, f4_splat(1));
            for (uint32_t i = 0; i < b.rows; i++) {
                mask_keys(call, p->mask_strides, place_of(&t, &b, i), (int64_t)t.length - p->q_len, first, count, scores[i]);
                float best = most[i];
                for (uint32_t j = 0; j < KEYS; j++)
                    if (scores[i][j] > best || scores[i][j] != scores[i][j]) best = scores[i][j];
                if (best == NEGATIVE_INFINITY) continue;
                f4 total = {0};
                for (uint32_t j = 0; j < KEYS; j += 4) total += f4_exp_negative(f4_load(scores[i] + j) - best);
                sum[i] = sum[i] * f4_exp_negative(f4_splat(most[i] - best))[0] + f4_sum(total);
                most[i] = best;
            }
        }
        for (uint32_t i = 0; i < b.rows; i++) {
            float *to = (float *)call->buffer[6] + 2 * line_of(&t, b.head[i], b.query[i]);
            Rows cotangent = cotangents_of(&t, b.head[i], b.query[i]), y = cotangent;
            y.first = call->buffer[2] + (cotangent.first - call->buffer[5]);
            load_row(scratch[0], cotangent, 0);
            load_row(scratch[1], y, 0);
            // A row that sees nothing: all its probabilities are exp(-infinity).
            to[0] = sum[i] == 0 ? -NEGATIVE_INFINITY : most[i] + m_log(sum[i]);
            to[1] = dot(scratch[0], scratch[1], t.v_dim);
        }
    }
}

uint32_t chunks_attention_vjp_queries(const Call *call) { return query_chunks(call); }

void k_attention_vjp_queries(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(AttentionVjpPush);
    Block q, cotangent, out;
    Scratch k_scratch, v_scratch;
    float scores[ROWS][KEYS], grads[ROWS][KEYS], lse[ROWS], delta[ROWS];
    uint32_t blocks = (query_rows(p) + ROWS - 1) / ROWS;
    for (; chunk < last; chunk++) {
        Task t = task_of(call, chunk / blocks);
        Queries b = queries_in(&t, chunk % blocks * ROWS);
        load_queries(&t, &b, q);
        __builtin_memset(cotangent, 0, sizeof cotangent);
        __builtin_memset(out, 0, sizeof out);
        for (uint32_t i = 0; i < b.rows; i++) {
            const float *stats = (const float *)call->buffer[6] + 2 * line_of(&t, b.head[i], b.query[i]);
            lse[i] = stats[0], delta[i] = stats[1];
            load_row(cotangent[i], cotangents_of(&t, b.head[i], b.query[i]), 0);
        }
        for (uint32_t first = 0; first < b.end; first += KEYS) {
            uint32_t count = min_u32(KEYS, b.end - first);
            Piece k = piece_of(keys_of(&t, first), count, k_scratch), v = piece_of(values_of(&t, first), count, v_scratch);
            score_rows(q, b.rows, k, t.dim, scores, f4_splat(1));
            score_rows(cotangent, b.rows, v, t.v_dim, grads, f4_splat(1));
            for (uint32_t i = 0; i < b.rows; i++) {
                mask_keys(call, p->mask_strides, place_of(&t, &b, i), (int64_t)t.length - p->q_len, first, count, scores[i]);
                for (uint32_t j = 0; j < k.keys; j += 4) {
                    f4 weight = f4_exp_negative(f4_load(scores[i] + j) - lse[i]);
                    f4_store(scores[i] + j, weight * (f4_load(grads[i] + j) - delta[i]) * p->scale);
                }
            }
            add_rows(out, b.rows, scores, k, t.dim);
        }
        for (uint32_t i = 0; i < b.rows; i++) {
            store_floats(call->buffer[7], line_of(&t, b.head[i], b.query[i]) * t.dim, out[i], t.dim, call->spec[3]);
        }
    }
}

// ---- blocks of keys -------------------------------------------------------------------------------------------------

uint32_t chunks_attention_vjp_keys(const Call *call) {
    PUSH(AttentionVjpPush);
    return p->batch * p->kv_heads * ((p->kv_len + ROWS - 1) / ROWS);
}

// Masks the scores of queries first .. first + count - 1 for a key.
static void mask_queries(const Task *t, uint32_t key, uint32_t head, uint32_t first, uint32_t count, float *scores) {
    const int32_t *strides = t->p->mask_strides;
    uint32_t mode = t->call->spec[6];
    if (mode == MASK_CAUSAL) {
        int64_t hidden = (int64_t)key + t->p->q_len - t->length - first; // queries that come too early
        for (int64_t j = 0; j < hidden && j < count; j++) scores[j] = NEGATIVE_INFINITY;
    } else if (mode != MASK_NONE) {
        ptrdiff_t at = (ptrdiff_t)t->batch * strides[0] + (ptrdiff_t)head * strides[1] + (ptrdiff_t)key * strides[3];
        for (uint32_t j = 0; j < count; j++) {
            if (!shows(t->call, at + (ptrdiff_t)(first + j) * strides[2], scores + j)) scores[j] = NEGATIVE_INFINITY;
        }
    }
}

typedef struct KeyBlock {
    Block k, v, dk, dv;
    Scratch q_scratch, c_scratch;
    float weights[ROWS][KEYS], grads[ROWS][KEYS];
} KeyBlock;

// Adds what `count` queries of a head give to a block of `rows` keys.
static void add_queries(const Task *t, KeyBlock *b, uint32_t key, uint32_t rows, uint32_t head, uint32_t first, uint32_t count) {
    Piece q = piece_of(queries_of(t, head, first), count, b->q_scratch);
    Piece c = piece_of(cotangents_of(t, head, first), count, b->c_scratch);
    float lse[KEYS], delta[KEYS];
    const float *stats = (const float *)t->call->buffer[6] + 2 * line_of(t, head, first);
    for (uint32_t j = 0; j < KEYS; j++) {
        lse[j] = j < count ? stats[2 * j] : -NEGATIVE_INFINITY;
        delta[j] = j < count ? stats[2 * j + 1] : 0;
    }
    score_rows(b->k, rows, q, t->dim, b->weights, f4_splat(t->p->scale));
    score_rows(b->v, rows, c, t->v_dim, b->grads, f4_splat(1));
    for (uint32_t i = 0; i < rows; i++) {
        mask_queries(t, key + i, head, first, count, b->weights[i]);
        for (uint32_t j = 0; j < q.keys; j += 4) {
            f4 weight = f4_exp_negative(f4_load(b->weights[i] + j) - f4_load(lse + j));
            f4_store(b->weights[i] + j, weight);
            f4_store(b->grads[i] + j, weight * (f4_load(b->grads[i] + j) - f4_load(delta + j)) * t->p->scale);
        }
    }
    add_rows(b->dv, rows, b->weights, c, t->v_dim);
    add_rows(b->dk, rows, b->grads, q, t->dim);
}

void k_attention_vjp_keys(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(AttentionVjpPush);
    KeyBlock b;
    __builtin_memset(b.weights, 0, sizeof b.weights);
    __builtin_memset(b.grads, 0, sizeof b.grads);
    uint32_t blocks = (p->kv_len + ROWS - 1) / ROWS, group = p->kv_heads ? p->heads / p->kv_heads : 0, dtype = call->spec[4];
    for (; chunk < last; chunk++) {
        Task t = task_of(call, chunk / blocks);
        uint32_t key = chunk % blocks * ROWS, all = min_u32(ROWS, p->kv_len - key);
        uint32_t rows = key < t.length ? min_u32(all, t.length - key) : 0;
        __builtin_memset(b.dk, 0, sizeof b.dk);
        __builtin_memset(b.dv, 0, sizeof b.dv);
        __builtin_memset(b.k, 0, sizeof b.k);
        __builtin_memset(b.v, 0, sizeof b.v);
        for (uint32_t i = 0; i < rows; i++) {
            load_row(b.k[i], keys_of(&t, key), i);
            load_row(b.v[i], values_of(&t, key), i);
        }
        int64_t from = call->spec[6] == MASK_CAUSAL ? (int64_t)key + p->q_len - t.length : 0;
        for (uint32_t head = t.kv_head * group; rows > 0 && head < (t.kv_head + 1) * group; head++) {
            for (int64_t first = from < 0 ? 0 : from; first < p->q_len; first += KEYS) {
                add_queries(&t, &b, key, rows, head, (uint32_t)first, min_u32(KEYS, (uint32_t)(p->q_len - first)));
            }
        }
        size_t line = ((size_t)t.batch * p->kv_heads + t.kv_head) * p->kv_len + key;
        size_t values = (size_t)p->batch * p->kv_heads * p->kv_len * t.dim;
        for (uint32_t i = 0; i < all; i++) {
            store_floats(call->buffer[7], (line + i) * t.dim, b.dk[i], t.dim, dtype);
            store_floats(call->buffer[7], values + (line + i) * t.v_dim, b.dv[i], t.v_dim, dtype);
        }
    }
}
