// Scaled dot-product attention with an online softmax: out = softmax(scale * q . k + mask) . v per query head.
//
// Query heads that share a kv head, and neighbouring queries, form blocks of up to 16 rows. A block walks over the keys
// in pieces. Each piece of k and v is converted to float32 once and used by all rows. Running maxima and sums keep one
// pass exact. A few rows read float16 keys and values, and codes, in place. `lengths` is one int32 for all batch rows (HAS_LENGTHS
// 1) or one for each (2), clamped to 0..kv_len. Masked keys and scores of the lowest float or -infinity count nothing;
// a row with no key left gives 0. Where spec constant 9, PAGE, is not 0, positions are in pages of so many.
// Buffer 3 then has the kv_len / PAGE pages of each batch row and no mask. Pages of uint8 have codes (kv_codes.h). Where spec constant 12,
// WINDOW, is not 0, a query sees the last WINDOW of the keys that it sees otherwise. Spec constant 13, GROUP, is the number of query heads
// that share a kv head. Where 14, HAS_SINKS, is not 0, buffer 6 has one more score for each head, which has no value.

#include "attention/attention_codes.h"
#include "attention/attention_half.h"
#include "attention/attention_tiles.h"
#include "attention/kv_address.h"

enum { FEW_ROWS = 4 };

typedef struct Block {
    const Call *call;
    const struct AttentionPush *p;
    uint32_t batch, kv_head, length, rows;
    Pages pages;      // of the batch row, a multiple of KEYS positions each
    bool coded;       // codes as attention_codes.h takes them
    bool split;       // float16 keys and values as attention_half.h takes them,
    f4 factor;        // the factor that they lack then,
    u16x8 magnitudes; // and the largest that were read so
    uint32_t head[ROWS], query[ROWS];
    float q[ROWS][STRIDE]; // scaled, padded to a multiple of 4 with zeros
    float out[ROWS][STRIDE];
    float scores[ROWS][KEYS];
    float most[ROWS], sum[ROWS];
    float scratch[KEYS][STRIDE];
} Block;

// Row `first` of k or v of this kv head.
static const uint8_t *row_of(const Block *b, const uint8_t *data, const int32_t *strides, uint32_t first) {
    if (b->pages.pages) return kv_page_address(data, strides, b->pages, b->kv_head, first, b->call->spec[4]);
    return kv_address(data, strides, b->batch, b->kv_head, first, b->call->spec[4]);
}

// Rows first..first+count-1 of k or v as floats; rows that fill up the piece are 0, so that they add nothing.
static Piece load_piece(Block *b, const uint8_t *from, const int32_t *strides, uint32_t dim, uint32_t first, uint32_t count,
                        float scratch[KEYS][STRIDE]) {
    uint32_t dtype = b->call->spec[4];
    ptrdiff_t bytes = DTYPE_BYTES(dtype);
    from = row_of(b, from, strides, first);
    if (dtype == DTYPE_F32 && dim % 4 == 0 && count == KEYS) return (Piece){(const float *)from, strides[2], KEYS};
    uint32_t keys = padded(count);
    for (uint32_t j = 0; j < keys; j++, from += strides[2] * bytes) {
        if (j < count && b->split) b->magnitudes = load_split(scratch[j], (const uint16_t *)from, dim, b->magnitudes);
        else if (j < count && b->coded) load_codes(scratch[j], from, dim);
        else if (j < count && dtype == DTYPE_U8) kv_decode_run(scratch[j], from, dim);
        else if (j < count) load_run(scratch[j], from, 0, dim, dtype);
        for (uint32_t d = j < count ? dim : 0; d < padded(dim); d++) scratch[j][d] = 0;
    }
    return (Piece){scratch[0], STRIDE, keys};
}

// Scores become weights relative to the running maximum; sums and outputs so far shrink to the new one.
static void softmax_row(Block *b, uint32_t i, uint32_t v_dim) {
    float *scores = b->scores[i], most = b->most[i];
    f4 best = f4_splat(most);
    for (uint32_t j = 0; j < KEYS; j += 4) {
        f4 v = f4_load(scores + j);
        u4 take = (u4)(v > best) | (u4)(v != v); // NaN stays
        best = (f4)(((u4)v & take) | ((u4)best & ~take));
    }
    for (int l = 0; l < 4; l++)
        if (best[l] > most || best[l] != best[l]) most = best[l];
    if (most == NEGATIVE_INFINITY) { // nothing seen yet
        __builtin_memset(scores, 0, KEYS * sizeof(float));
        return;
    }
    f4 sum = {0};
    for (uint32_t j = 0; j < KEYS; j += 4) {
        f4 weight = f4_exp_negative(f4_load(scores + j) - most);
        f4_store(scores + j, weight * b->factor);
        sum += weight;
    }
    if (most != b->most[i]) {
        float shrink = f4_exp_negative(f4_splat(b->most[i] - most))[0];
        for (uint32_t d = 0; d < v_dim; d += 4) f4_store(b->out[i] + d, f4_load(b->out[i] + d) * shrink);
        b->sum[i] *= shrink;
        b->most[i] = most;
    }
    b->sum[i] += f4_sum(sum);
}

// The keys before this one are those that a row sees, or the last of them.
static int64_t end_of(const Block *b, uint32_t row) {
    if (b->call->spec[6] != MASK_CAUSAL) return b->length;
    return (int64_t)b->query[row] + b->length - b->p->q_len + 1;
}

// Masks the scores of keys from `first` on that are before the window of a row.
static void mask_window(Block *b, uint32_t row, uint32_t first, uint32_t window) {
    int64_t unseen = end_of(b, row) - window - first;
    for (int64_t j = 0; j < unseen && j < KEYS; j++) b->scores[row][j] = NEGATIVE_INFINITY;
}

// Computes a block; `split` where its dims and dtype fit. False, and nothing done, if that cannot serve the values.
static bool run_block(Block *b, bool split) {
    const struct AttentionPush *p = b->p;
    const uint32_t *spec = b->call->spec;
    uint32_t dim = spec[1], v_dim = spec[2], dtype_q = spec[3], dtype_out = spec[5], window = spec[12];
    uint32_t last_query = 0;
    b->split = split && spec[4] == DTYPE_F16 && dim % 8 == 0 && v_dim % 8 == 0;
    b->coded = spec[4] == DTYPE_U8 && dim % CODE_DIMS == 0 && v_dim % CODE_DIMS == 0;
    b->factor = f4_splat(b->split ? HALF_FACTOR : 1);
    b->magnitudes = (u16x8){0};
    __builtin_memset(b->q, 0, (b->rows + 1) / 2 * 2 * sizeof b->q[0]);
    __builtin_memset(b->out, 0, (b->rows + 1) / 2 * 2 * sizeof b->out[0]);
    for (uint32_t i = 0; i < b->rows; i++) {
        ptrdiff_t element =
            (ptrdiff_t)b->batch * p->q_strides[0] + (ptrdiff_t)b->head[i] * p->q_strides[1] + (ptrdiff_t)b->query[i] * p->q_strides[2];
        load_run(b->q[i], b->call->buffer[0] + element * (ptrdiff_t)DTYPE_BYTES(dtype_q), 0, dim, dtype_q);
        for (uint32_t d = 0; d < dim; d++) b->q[i][d] *= p->scale;
        if (b->split) to_split_order(b->q[i], dim);
        if (b->coded) swap_code_order(b->q[i], dim);
        b->most[i] = spec[14] ? load_float(b->call->buffer[6], b->head[i], spec[15]) : NEGATIVE_INFINITY;
        b->sum[i] = b->most[i] > NEGATIVE_INFINITY;
        last_query = b->query[i] > last_query ? b->query[i] : last_query;
    }
    // Beyond the last query's last key a causal block sees nothing.
    int64_t end = b->length, causal_end = (int64_t)last_query + b->length - p->q_len + 1;
    if (spec[6] == MASK_CAUSAL && causal_end < end) end = causal_end;
    // Nor before the window of its first query, whole pieces of keys.
    int64_t begin = window && end_of(b, 0) > window ? (end_of(b, 0) - window) / KEYS * KEYS : 0;
    for (uint32_t first = (uint32_t)begin; (int64_t)first < end; first += KEYS) {
        uint32_t count = min_u32(KEYS, (uint32_t)end - first);
        bool here = (b->split || b->coded) && b->rows <= FEW_ROWS && count == KEYS;
        if (here && b->coded) {
            const uint8_t *k = row_of(b, b->call->buffer[1], p->k_strides, first);
            for (uint32_t i = 0; i < b->rows; i += 2) score_codes(b->q[i], STRIDE, k, p->k_strides[2], dim, KEYS, b->scores[i], KEYS);
        } else if (here) {
            const uint16_t *k = (const uint16_t *)row_of(b, b->call->buffer[1], p->k_strides, first);
            for (uint32_t i = 0; i < b->rows; i += 2) {
                b->magnitudes = score_halves(b->q[i], STRIDE, k, p->k_strides[2], dim, KEYS, b->scores[i], KEYS, b->magnitudes);
            }
        } else {
            Piece k = load_piece(b, b->call->buffer[1], p->k_strides, dim, first, count, b->scratch);
            score_rows(b->q, b->rows, k, dim, b->scores, b->factor);
        }
        for (uint32_t i = 0; i < b->rows; i++) {
            mask_keys(b->call, p->mask_strides, (Place){b->batch, b->head[i], b->query[i]}, (int64_t)b->length - p->q_len, first, count,
                      b->scores[i]);
            if (window) mask_window(b, i, first, window);
            softmax_row(b, i, v_dim);
        }
        if (here && b->coded) {
            const uint8_t *v = row_of(b, b->call->buffer[2], p->v_strides, first);
            for (uint32_t i = 0; i < b->rows; i += 2) add_codes(b->out[i], STRIDE, v, p->v_strides[2], v_dim, KEYS, b->scores[i], KEYS);
        } else if (here) {
            const uint16_t *v = (const uint16_t *)row_of(b, b->call->buffer[2], p->v_strides, first);
            for (uint32_t i = 0; i < b->rows; i += 2) {
                b->magnitudes = add_halves(b->out[i], STRIDE, v, p->v_strides[2], v_dim, KEYS, b->scores[i], KEYS, b->magnitudes);
            }
        } else {
            add_rows(b->out, b->rows, b->scores, load_piece(b, b->call->buffer[2], p->v_strides, v_dim, first, count, b->scratch), v_dim);
        }
    }
    if (any_special(b->magnitudes)) return false;
    for (uint32_t i = 0; i < b->rows; i++) {
        size_t at = (((size_t)b->batch * p->heads + b->head[i]) * p->q_len + b->query[i]) * v_dim;
        float inverse = b->sum[i] > 0 || b->sum[i] != b->sum[i] ? 1 / b->sum[i] : 0;
        for (uint32_t d = 0; d < v_dim; d += 4) f4_store(b->out[i] + d, f4_load(b->out[i] + d) * inverse);
        if (b->split) from_split_order(b->out[i], v_dim);
        if (b->coded) swap_code_order(b->out[i], v_dim);
        store_floats(b->call->buffer[5], at, b->out[i], v_dim, dtype_out);
    }
    return true;
}

// Rows of a kv head: its query heads for the first query, then for the next.
static uint32_t rows_of(const Call *call, const struct AttentionPush *p) { return call->spec[13] * p->q_len; }

// A chunk is a block: some rows of one kv head of one batch row.
uint32_t chunks_attention(const Call *call) {
    PUSH(AttentionPush);
    return p->batch * (p->heads / call->spec[13]) * ((rows_of(call, p) + ROWS - 1) / ROWS);
}

void k_attention(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(AttentionPush);
    const uint32_t page = call->spec[9];
    Block b;
    b.call = call;
    b.p = p;
    b.length = p->kv_len;
    uint32_t has_lengths = call->spec[8];
    uint32_t rows = rows_of(call, p), blocks = (rows + ROWS - 1) / ROWS, group = call->spec[13], kv_heads = p->heads / group;
    __builtin_memset(b.scores, 0, sizeof b.scores);
    for (; chunk < last; chunk++) {
        uint32_t first = chunk % blocks * ROWS;
        b.kv_head = chunk / blocks % kv_heads;
        b.batch = chunk / blocks / kv_heads;
        b.rows = min_u32(ROWS, rows - first);
        b.pages = page ? (Pages){(const int32_t *)call->buffer[3] + (size_t)b.batch * (p->kv_len / page), page} : (Pages){0};
        if (has_lengths) {
            int32_t length = ((const int32_t *)call->buffer[4])[has_lengths == 2 ? b.batch : 0];
            b.length = length < 0 ? 0 : min_u32((uint32_t)length, p->kv_len);
        }
        for (uint32_t i = 0; i < b.rows; i++) {
            b.head[i] = b.kv_head * group + (first + i) % group;
            b.query[i] = (first + i) / group;
        }
        if (!run_block(&b, true)) run_block(&b, false);
    }
}
