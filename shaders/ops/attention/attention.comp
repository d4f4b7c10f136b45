#version 460
// attention: out = softmax(scale * q . k + mask) . v per query head, online: one pass over the keys, any kv_len.
//
// A workgroup serves up to QUERIES neighbouring queries of one head and walks over the keys THREADS at a time:
//   scores    a thread a key: its dot products with all queries
//   softmax   a subgroup a query: running maximum and sum, scores become weights
//   values    a thread a feature (several slices of keys where V_DIM is small): out += weights . v
// Query head h reads kv head h / GROUP. `lengths` is one int32 for all batch rows (HAS_LENGTHS 1) or one for each (2),
// clamped to 0..kv_len. Where PAGE is not 0, positions are in pages of so many. Then the
// kv_len / PAGE pages of each batch row are in the place of a mask. Features may lie in blocks of K_BLOCK and V_BLOCK,
// multiples of 4. Pages may have codes (include/kv_codes.glsl), with DTYPE_KV DTYPE_U8. Where WINDOW is not 0, a query sees the last WINDOW
// of the keys that it sees otherwise.
// Masked keys and scores of the lowest float or -infinity count nothing; a row with no key left gives 0. HEAD_DIM and
// V_DIM up to 256. Any THREADS up to 512 that is a multiple of 32. Workgroups: max(SPLITS, 1) * batch * heads * ceil(q_len / 8), folded
// over (x, y).
//
// Of one query, where heads are too few for the device, SPLITS parts of the keys are workgroups of their own. They leave their outputs (split,
// batch, heads, V_DIM) in float32, and after those the stats that attention_merge takes, which adds sinks too.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 7
#define PUSH AttentionPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEAD_DIM = 128;
layout(constant_id = 2) const uint V_DIM = 128;
layout(constant_id = 3) const uint DTYPE_Q = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_KV = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 6) const uint MASK_MODE = MASK_NONE;
layout(constant_id = 7) const uint DTYPE_MASK = DTYPE_BOOL;
layout(constant_id = 8) const uint HAS_LENGTHS = 0;
layout(constant_id = 9) const uint PAGE = 0;
layout(constant_id = 10) const uint K_BLOCK = 0; // 0: all features of a position lie together
layout(constant_id = 11) const uint V_BLOCK = 0;
layout(constant_id = 12) const uint WINDOW = 0;    // only without a mask, or with the causal one
layout(constant_id = 13) const uint GROUP = 1;     // query heads that share a kv head
layout(constant_id = 14) const uint HAS_SINKS = 0; // one more score for each head, which has no value
layout(constant_id = 15) const uint DTYPE_SINKS = DTYPE_F32;
layout(constant_id = 16) const uint SPLITS = 0;     // parts of the keys, of one query only; 0: all keys are one
layout(constant_id = 17) const uint SPLIT_KEYS = 0; // of a part

#include "include/vec4.glsl"
#include "include/vector.glsl"
#define KV_STRIDES
#define KV_PAGES
#include "include/kv_address.glsl"
#include "include/kv_codes.glsl"

const uint QUERIES = 8u;
const uint EIGHTS = (HEAD_DIM + 7u) / 8u;
const uint SLICE = V_DIM < THREADS ? V_DIM : THREADS; // threads of a slice of keys
const uint SLICES = THREADS / SLICE;
const uint FEATURES = (V_DIM + THREADS - 1u) / THREADS; // of a thread
const float LOWEST = -3.4028235e38;

shared vec4 q_rows[QUERIES * EIGHTS * 2]; // scaled; features beyond HEAD_DIM are 0
shared float weights[QUERIES * THREADS];  // at the end: outputs of the slices but the first
shared float row_most[QUERIES], row_sum[QUERIES], row_shrink[QUERIES];

uint batch, head, query0, kv_length, part;
uint64_t k_address, v_address;
bool k_wide;

uint64_t row_address(uint64_t address, int strides[3], uint h, uint position, uint dtype) {
    int i = int(batch) * strides[0] + int(h) * strides[1] + int(position) * strides[2];
    return element_address(address, i, DTYPE_BYTES(dtype));
}

// The keys before this one are those that query `row` sees, or the last WINDOW of them.
int end_of(uint row) { return MASK_MODE == MASK_CAUSAL ? int(row + 1 + kv_length) - int(pc.p.q_len) : int(kv_length); }

// Lowest for keys that query `row` must not see.
float masked(float score, uint row, uint key) {
    if (WINDOW != 0 && int(key + WINDOW) < end_of(row)) return LOWEST;
    if (MASK_MODE == MASK_CAUSAL) return int(key) > int(row + kv_length) - int(pc.p.q_len) ? LOWEST : score;
    if (MASK_MODE == MASK_NONE) return score;
    int i = int(batch) * pc.p.mask_strides[0] + int(head) * pc.p.mask_strides[1] + int(row) * pc.p.mask_strides[2] +
            int(key) * pc.p.mask_strides[3];
    uint64_t element = element_address(pc.address[3], i, DTYPE_BYTES(DTYPE_MASK));
    if (MASK_MODE == MASK_ADD) return score + load_float(element, 0, DTYPE_MASK);
    return load_bits(element, 0, DTYPE_MASK) != 0u ? score : LOWEST;
}

void load_queries(uint queries) {
    for (uint i = gl_LocalInvocationID.x; i < queries * EIGHTS * 8; i += THREADS) {
        uint row = min(query0 + i / (EIGHTS * 8), pc.p.q_len - 1), d = i % (EIGHTS * 8);
        uint64_t q = row_address(pc.address[0], pc.p.q_strides, head, row, DTYPE_Q);
        q_rows[i / 4][i % 4] = d < HEAD_DIM ? load_float(q, d, DTYPE_Q) * pc.p.scale : 0.0;
    }
    if (gl_LocalInvocationID.x < queries) {
        bool sinks = HAS_SINKS != 0 && SPLITS == 0;
        row_most[gl_LocalInvocationID.x] = sinks ? max(load_float(pc.address[6], head, DTYPE_SINKS), LOWEST) : LOWEST;
        row_sum[gl_LocalInvocationID.x] = sinks ? 1.0 : 0.0;
    }
}

// Where a feature is beside the first one of its position.
uint in_blocks(uint d, uint block) {
    if (block == 0) return d;
    return d / block * (PAGE * block) + d % block;
}

void load_k(uint64_t k, uint d, out vec4 first, out vec4 second) {
    if (DTYPE_KV == DTYPE_U8) {
        first = kv_decode(U32s(k + in_blocks(d, K_BLOCK)).v[0]);
        second = kv_decode(U32s(k + in_blocks(min(d + 4, HEAD_DIM - 4), K_BLOCK)).v[0]);
    } else if (K_BLOCK != 0) {
        first = load_quad(k + in_blocks(d, K_BLOCK) * KV_BYTES, 0, DTYPE_KV);
        second = load_quad(k + in_blocks(min(d + 4, HEAD_DIM - 4), K_BLOCK) * KV_BYTES, 0, DTYPE_KV);
    } else if (k_wide) {
        load8(k, d, DTYPE_KV, first, second);
    } else {
        [[unroll]] for (uint j = 0; j < 4; j++) { // repeats of the last feature meet zeros of q
            first[j] = load_float(k, min(d + j, HEAD_DIM - 1), DTYPE_KV);
            second[j] = load_float(k, min(d + j + 4, HEAD_DIM - 1), DTYPE_KV);
        }
    }
}

float load_v(uint64_t v, uint d) {
    if (DTYPE_KV == DTYPE_U8) return kv_feature(U32s(v + in_blocks(d & ~3u, V_BLOCK)).v[0], d & 3u);
    return load_float(v, in_blocks(d, V_BLOCK), DTYPE_KV);
}

// Scores of key first + thread; those beyond the end are LOWEST.
void score_keys(uint queries, uint first, uint count) {
    float scores[QUERIES];
    [[unroll]] for (uint i = 0; i < queries; i++)
        scores[i] = 0.0;
    bool inside = gl_LocalInvocationID.x < count;
    uint key = first + gl_LocalInvocationID.x;
    if (inside) {
        uint64_t k = kv_address(k_address, pc.p.k_strides, key, 0);
        for (uint eight = 0; eight < EIGHTS; eight++) {
            vec4 a, b;
            load_k(k, eight * 8, a, b);
            [[unroll]] for (uint i = 0; i < queries; i++) {
                scores[i] += dot(q_rows[(i * EIGHTS + eight) * 2], a) + dot(q_rows[(i * EIGHTS + eight) * 2 + 1], b);
            }
        }
    }
    [[unroll]] for (uint i = 0; i < queries; i++) {
        uint row = min(query0 + i, pc.p.q_len - 1);
        weights[i * THREADS + gl_LocalInvocationID.x] = inside ? masked(scores[i], row, key) : LOWEST;
    }
}

// Scores become weights relative to the running maximum.
void soften(uint queries) {
    for (uint i = gl_SubgroupID; i < queries; i += gl_NumSubgroups) {
        float before = row_most[i], most = before, sum = 0.0;
        for (uint j = gl_SubgroupInvocationID; j < THREADS; j += gl_SubgroupSize) { most = max(most, weights[i * THREADS + j]); }
        most = subgroupMax(most);
        for (uint j = gl_SubgroupInvocationID; j < THREADS; j += gl_SubgroupSize) {
            float score = weights[i * THREADS + j];
            float weight = score <= LOWEST ? 0.0 : exp(score - most);
            weights[i * THREADS + j] = weight;
            sum += weight;
        }
        sum = subgroupAdd(sum);
        if (subgroupElect()) {
            float shrink = exp(before - most);
            row_shrink[i] = shrink;
            row_sum[i] = row_sum[i] * shrink + sum;
            row_most[i] = most;
        }
    }
}

void attention(uint queries) {
    float outputs[QUERIES * FEATURES];
    [[unroll]] for (uint i = 0; i < queries * FEATURES; i++)
        outputs[i] = 0.0;
    uint slice = gl_LocalInvocationID.x / SLICE, feature = gl_LocalInvocationID.x % SLICE;
    load_queries(queries);
    barrier();
    // Beyond the last query's last key a causal block sees nothing.
    uint end = kv_length;
    if (MASK_MODE == MASK_CAUSAL) { end = uint(clamp(int(query0 + queries + kv_length) - int(pc.p.q_len), 0, int(kv_length))); }
    uint begin = WINDOW != 0 ? uint(max(end_of(query0) - int(WINDOW), 0)) : 0;
    if (SPLITS > 0) {
        begin = max(begin, part * SPLIT_KEYS);
        end = min(end, (part + 1) * SPLIT_KEYS);
    }
    for (uint first = begin; first < end; first += THREADS) {
        uint count = min(THREADS, end - first);
        score_keys(queries, first, count);
        barrier();
        soften(queries);
        barrier();
        [[unroll]] for (uint i = 0; i < queries * FEATURES; i++)
            outputs[i] *= row_shrink[i / FEATURES];
        if (slice < SLICES) {
            for (uint key = slice; key < count; key += 2 * SLICES) {
                [[unroll]] for (uint step = 0; step < 2; step++) { // two keys a turn
                    uint j = min(key + step * SLICES, count - 1);
                    bool inside = key + step * SLICES < count;
                    uint64_t v = kv_address(v_address, pc.p.v_strides, first + j, 0);
                    [[unroll]] for (uint f = 0; f < FEATURES; f++) {
                        float value = load_v(v, min(feature + f * THREADS, V_DIM - 1));
                        [[unroll]] for (uint i = 0; i < queries; i++) {
                            float weight = inside ? weights[i * THREADS + j] : 0.0;
                            outputs[i * FEATURES + f] = fma(weight, value, outputs[i * FEATURES + f]);
                        }
                    }
                }
            }
        }
        barrier();
    }
    // More than one slice only where V_DIM <= THREADS / 2, so FEATURES is 1 and the slices fit into `weights`.
    if (SLICES > 1) {
        if (slice > 0 && slice < SLICES) {
            [[unroll]] for (uint i = 0; i < queries; i++) { weights[((slice - 1) * queries + i) * SLICE + feature] = outputs[i]; }
        }
        barrier();
        for (uint other = 1; other < SLICES; other++) {
            [[unroll]] for (uint i = 0; i < queries; i++) { outputs[i] += weights[((other - 1) * queries + i) * SLICE + feature]; }
        }
    }
    if (SPLITS > 0 && gl_LocalInvocationID.x == 0) {
        uint lines = pc.p.batch * pc.p.heads, line = (part * pc.p.batch + batch) * pc.p.heads + head;
        uint64_t stats = pc.address[5] + uint64_t(SPLITS * lines) * (V_DIM * 4) + uint64_t(line) * 8;
        F32s(stats).v[0] = row_sum[0] == 0.0 ? -1e30 : row_most[0] * 1.4426950408889634;
        F32s(stats).v[1] = row_sum[0];
    }
    if (slice == 0) {
        [[unroll]] for (uint i = 0; i < queries; i++) {
            uint row = query0 + i;
            float sum = row_sum[i];
            if (row < pc.p.q_len) {
                uint64_t line = uint64_t((part * pc.p.batch + batch) * pc.p.heads + head) * pc.p.q_len + row;
                uint64_t to = pc.address[5] + line * (V_DIM * DTYPE_BYTES(DTYPE_OUT));
                [[unroll]] for (uint f = 0; f < FEATURES; f++) {
                    uint d = feature + f * THREADS;
                    if (d < V_DIM) store_float(to, d, DTYPE_OUT, sum == 0.0 ? 0.0 : outputs[i * FEATURES + f] / sum);
                }
            }
        }
    }
}

void main() {
    uint blocks = (pc.p.q_len + QUERIES - 1) / QUERIES, group = flat_workgroup();
    if (group >= max(SPLITS, 1) * pc.p.batch * pc.p.heads * blocks) return;
    query0 = group % blocks * QUERIES;
    head = group / blocks % pc.p.heads;
    batch = group / blocks / pc.p.heads % pc.p.batch;
    part = group / blocks / pc.p.heads / pc.p.batch;
    uint kv_head = head / GROUP;
    kv_length = HAS_LENGTHS != 0 ? uint(clamp(I32s(pc.address[4]).v[HAS_LENGTHS == 2 ? batch : 0], 0, int(pc.p.kv_len))) : pc.p.kv_len;
    if (PAGE != 0) kv_pages = pc.address[3] + uint64_t(batch) * (pc.p.kv_len / PAGE * 4);
    k_address = kv_head_address(pc.address[1], pc.p.k_strides, batch, kv_head);
    v_address = kv_head_address(pc.address[2], pc.p.v_strides, batch, kv_head);
    k_wide = HEAD_DIM % 8 == 0 && aligned16(k_address) && (uint(pc.p.k_strides[2]) * KV_BYTES) % 16 == 0 &&
             (PAGE == 0 || (uint(pc.p.k_strides[0]) * KV_BYTES) % 16 == 0);
    // One query, the shape of decoding, needs an eighth of the registers and of the work.
    if (pc.p.q_len == 1) attention(1);
    else attention(QUERIES);
}
