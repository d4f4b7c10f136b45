#version 460
// coopmat_attention: out = softmax(scale * q . k + mask) . v for many queries at once, in 16x16x16 matrices, online over the keys.
//
// Rows are (position, query head of a group): all query heads of a kv head share its keys and values. A workgroup of
// SUBGROUPS walks over the keys KEYS at a time. Keys go through shared memory as float16, and the next ones
// are already loading. The subgroups form KEY_GROUPS times as many rows of 16. With 2, two subgroups share their rows,
// see half of the keys each time, and add up at the end. That suits few rows. Scores stay in registers. Of a sum matrix
// a lane holds the elements 0-3 of one row and 4-7 of another in the same columns. Four neighbouring lanes share their
// rows. A has the same order, so that weights are multiplied as they come.
// Outputs of wide heads are too many registers. With FEATURE_GROUPS 2 the two subgroups exchange the weights of a tile of
// keys, and each adds up half of the features. They keep one largest score of a row.
//
// Heads of FEATURES, a multiple of 8, are padded to HEAD_DIM: queries with 0, so that keys and values may repeat any others.
// `lengths` is the number of keys that count, limited to kv_len. It is one int32 (HAS_LENGTHS 1) or one for each batch
// row (2). Without it all keys count. Row i sees the first i + 1 + keys - q_len where CAUSAL; a row that sees none
// gives 0. Features of keys and values lie in blocks of K_BLOCK and V_BLOCK, with all positions of one block together.
// A block of FEATURES is the plain layout. Features of a block begin at multiples of their bytes, at most 16. If
// queries are few, SPLITS workgroups share their keys. Each leaves its partial result in float32, out (split, batch,
// …). It also leaves the largest score and the sum of weights of each of these rows; attention_merge does the rest.
// Where PAGE is not 0, positions are in pages of so many. `pages` has the kv_len / PAGE of each batch row,
// and the first stride of keys and values is from page to page. Pages may have codes (include/kv_codes.glsl), with DTYPE_KV DTYPE_U8.
// Where WINDOW is not 0, a row sees the last WINDOW of the keys that it sees otherwise. A tile of rows begins at the first key that it needs.
// THREADS must be 32 * SUBGROUPS. Workgroups: (kv_heads, ceil(q_len * GROUP / (16 * SUBGROUPS / KEY_GROUPS)), SPLITS * batch).

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require
#define BUFFERS 7
#define PUSH CoopmatAttentionPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_Q = DTYPE_F16;
layout(constant_id = 2) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 4) const uint CAUSAL = 1;
layout(constant_id = 5) const uint HAS_LENGTHS = 0;
layout(constant_id = 6) const uint K_BLOCK = HEAD_DIM;
layout(constant_id = 7) const uint V_BLOCK = HEAD_DIM;
layout(constant_id = 8) const uint GROUP = 1; // query heads that share a kv head
layout(constant_id = 9) const uint SPLITS = 1;
layout(constant_id = 10) const uint PAGE = 0; // positions of a page, a multiple of KEYS; 0 where there are no pages
layout(constant_id = 11) const uint WINDOW = 0;
layout(constant_id = 12) const uint FEATURES = HEAD_DIM; // of a head, a multiple of 8

#include "include/vector.glsl"
#define KV_STRIDES
#define KV_PAGES
#include "include/kv_address.glsl"
#include "half_codes.glsl"
#include "include/kv_codes.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2s { vec2 v[]; };

#define WORKERS (32 * SUBGROUPS)
#define ROW_GROUPS (SUBGROUPS / KEY_GROUPS)
#define ROWS (16 * ROW_GROUPS)
#define KEYS_EACH (KEYS / KEY_GROUPS)
#define SCORES (KEYS_EACH / 16)
#define EIGHTS (HEAD_DIM / 8)
#define STRIDE (EIGHTS + 1) // uvec4 from row to row in shared memory
#define BLOCKS (HEAD_DIM / 16)
#define OUTPUTS (BLOCKS / FEATURE_GROUPS) // matrices of a subgroup
// Sums of products that do not wait for each other.
#define CHAINS (SCORES > 1 ? 1 : 2)
#define LOADS (KEYS * EIGHTS / WORKERS)    // uvec4 a thread of KEYS keys, and of as many values
#define VALUES (KEYS * STRIDE)             // where values begin
#define PART (BLOCKS > 8 ? 2 : BLOCKS / 2) // matrices of outputs that are stored at once
#define PART_STRIDE (PART * 4 + 1)         // from row to row of these, float32
const float LOWEST = -1e30;
const bool CODED = DTYPE_KV == DTYPE_U8;
const uint AHEAD = CODED ? 2u : 1u; // tiles of keys on their way: two of codes are as many bytes as one of 16 bits

shared uvec4 tile[2 * KEYS * STRIDE]; // keys and values; before them the queries, after them the outputs
// First the numbers of a matrix's elements. With 2 groups of features then the weights of each lane. At the end, with 2 groups of keys, of
// each lane's rows the largest scores and the sums.
shared uvec4 beside[KEY_GROUPS > 1 ? WORKERS : 64];
#if FEATURE_GROUPS > 1
shared vec2 peaks[WORKERS]; // of each lane's rows the largest scores
#endif

MATRIX_A queries[BLOCKS];
MATRIX_SUM outputs[OUTPUTS];
// As they lie in memory where that is in 16 bits. Of codes it is two words each of two tiles, which take turns.
uvec4 keys_next[LOADS], values_next[LOADS];
uint batch, split, kv_head, row0, rows, kv_length, row_group, key_group;
uint64_t k_address, v_address;
uint page_ahead; // of the keys that are loaded next

uint64_t row_address_in(uint part, uint64_t address, int strides[3], uint head, uint position, uint dtype) {
    return element_address(address, int(part) * strides[0] + int(head) * strides[1] + int(position) * strides[2], DTYPE_BYTES(dtype));
}

uint64_t row_address(uint64_t address, int strides[3], uint head, uint position, uint dtype) {
    return row_address_in(batch, address, strides, head, position, dtype);
}

// Head and position of a row; those beyond the end repeat the last one.
uvec2 row_place(uint row) {
    uint r = min(row, rows - 1);
    return uvec2(kv_head * GROUP + r % GROUP, r / GROUP);
}

// Keys that a row sees.
uint row_limit(uint row) { return CAUSAL != 0 ? uint(max(int(row_place(row).y + kv_length) - int(pc.p.q_len) + 1, 0)) : kv_length; }

#include "coopmat/half_pair.glsl"
uvec4 halves(vec4 a, vec4 b) { return uvec4(half_pair(a.xy), half_pair(a.zw), half_pair(b.xy), half_pair(b.zw)); }

// ---- keys and values --------------------------------------------------------------------------------------------------

// Key and eight features of a load: neighbours in memory are neighbouring threads.
uvec2 load_place(uint f, uint block) { return block < FEATURES ? uvec2(f % KEYS, f / KEYS) : uvec2(f / EIGHTS, f % EIGHTS); }

// The first of eight features: padding repeats the last ones.
uint eight_of(uint i) { return min(i * 8, FEATURES - 8); }

// Where feature d of a position is, beside the first one.
int feature_at(uint d, uint block, int block_stride) { return int(d / block) * block_stride + int(d % block); }

// `head` is the first position of a head, in a page if there are any.
uvec4 load_eight(uint64_t head, int strides[3], uint position, uint d, uint block, int block_stride) {
    int row = int(position) * strides[2];
    uint64_t near = element_address(head, row + feature_at(d, block, block_stride), KV_BYTES);
    if (CODED && block >= 8) return uvec4(U32x2s(near).v[0], 0, 0);
    if (DTYPE_KV != DTYPE_F32 && block >= 8) return U32x4s(near).v[0];
    uint64_t far = element_address(head, row + feature_at(d + 4, block, block_stride), KV_BYTES);
    if (CODED) return uvec4(U32s(near).v[0], U32s(far).v[0], 0, 0);
    if (DTYPE_KV != DTYPE_F32) return uvec4(U32x2s(near).v[0], U32x2s(far).v[0]);
    return halves(F32x4s(near).v[0], F32x4s(far).v[0]);
}

// The number of the page that has a position.
uint page_of(uint position) {
    if (PAGE == 0) return 0;
    return uint(clamp(I32s(kv_pages).v[min(position, pc.p.kv_len - 1) / PAGE], 0, int(pc.p.pages) - 1));
}

// Asks for a tile, in the place of the one before of the same turn.
void load_keys(uint first, uint turn) {
    uint last = pc.p.kv_len - 1; // those that do not count are left out later: loads need not wait for the length
    uint64_t keys = k_address, values = v_address;
    if (PAGE != 0) { // one has all of these positions
        keys += kv_page_offset(pc.p.k_strides, page_ahead);
        values += kv_page_offset(pc.p.v_strides, page_ahead);
        page_ahead = page_of(first + KEYS);
        first %= PAGE;
        last = PAGE - 1;
    }
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uvec2 k = load_place(gl_LocalInvocationIndex + i * WORKERS, K_BLOCK),
              v = load_place(gl_LocalInvocationIndex + i * WORKERS, V_BLOCK);
        uvec4 key = load_eight(keys, pc.p.k_strides, min(first + k.x, last), eight_of(k.y), K_BLOCK, pc.p.k_block_stride),
              value = load_eight(values, pc.p.v_strides, min(first + v.x, last), eight_of(v.y), V_BLOCK, pc.p.v_block_stride);
        if (!CODED) {
            keys_next[i] = key;
            values_next[i] = value;
        } else if (turn == 0) {
            keys_next[i].xy = key.xy;
            values_next[i].xy = value.xy;
        } else {
            keys_next[i].zw = key.xy;
            values_next[i].zw = value.xy;
        }
    }
}

// Asks for the first tiles. One after the end is never used.
void load_first(uint first) {
    load_keys(first, 0);
    if (CODED) load_keys(first + KEYS, 1);
}

// Converted only now: the loads had time until here.
uvec4 loaded(uvec4 x, uint turn) {
    if (CODED) return turn == 0 ? uvec4(kv_halves(x.x), kv_halves(x.y)) : uvec4(kv_halves(x.z), kv_halves(x.w));
    if (DTYPE_KV != DTYPE_BF16) return x;
    return halves(pair_values(x.xy, DTYPE_BF16), pair_values(x.zw, DTYPE_BF16));
}

// Past the end a cache holds anything. Scores of such keys are replaced, but their values are multiplied by 0 and must
// be finite.
void store_keys(uint first, uint turn) {
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uvec2 k = load_place(gl_LocalInvocationIndex + i * WORKERS, K_BLOCK),
              v = load_place(gl_LocalInvocationIndex + i * WORKERS, V_BLOCK);
        tile[k.x * STRIDE + k.y] = loaded(keys_next[i], turn);
        tile[VALUES + v.x * STRIDE + v.y] = first + v.x < kv_length ? loaded(values_next[i], turn) : uvec4(0);
    }
}

// ---- queries and rows -------------------------------------------------------------------------------------------------

#define QUERY_LOADS (ROWS * EIGHTS / WORKERS)
#define QUERY(i) (gl_LocalInvocationIndex + (i) * WORKERS)

void load_queries(out uvec4 raw[QUERY_LOADS]) {
    float scale = pc.p.scale * 1.4426950408889634; // exp2 below
    [[unroll]] for (uint i = 0; i < QUERY_LOADS; i++) {
        uvec2 place = row_place(row0 + QUERY(i) / EIGHTS);
        vec4 a, b;
        uint eight = QUERY(i) % EIGHTS;
        load8(row_address(pc.address[0], pc.p.q_strides, place.x, place.y, DTYPE_Q), eight_of(eight), DTYPE_Q, a, b);
        raw[i] = eight * 8 < FEATURES ? halves(a * scale, b * scale) : uvec4(0);
    }
}

// Makes matrices of them, and gives the lane's elements of a sum matrix. x and y are its two rows, and z the columns of
// elements 0-3 as four bytes.
uvec3 spread_queries(uvec4 raw[QUERY_LOADS]) {
    [[unroll]] for (uint i = 0; i < QUERY_LOADS; i++)
        tile[QUERY(i) / EIGHTS * STRIDE + QUERY(i) % EIGHTS] = raw[i];
    if (gl_LocalInvocationIndex < 64)
        beside[gl_LocalInvocationIndex] = floatBitsToUint(vec4(gl_LocalInvocationIndex * 4) + vec4(0, 1, 2, 3));
    barrier();
    [[unroll]] for (uint i = 0; i < BLOCKS; i++)
        coopMatLoad(queries[i], tile, row_group * 16 * STRIDE + i * 2, STRIDE, ROW_MAJOR);
    MATRIX_SUM index;
    coopMatLoad(index, beside, 0, 4, ROW_MAJOR);
    uint columns = uint(index[0]) % 16 | uint(index[1]) % 16 << 8 | uint(index[2]) % 16 << 16 | uint(index[3]) % 16 << 24;
    return uvec3(uint(index[0]) / 16, uint(index[4]) / 16, columns);
}

// Over the four lanes that share a row.
float row_max(float x) {
    x = max(x, subgroupShuffleXor(x, 1));
    return max(x, subgroupShuffleXor(x, 2));
}
float row_sum(float x) {
    x += subgroupShuffleXor(x, 1);
    return x + subgroupShuffleXor(x, 2);
}

// A matrix with a number for each row.
MATRIX_SUM by_row(vec2 x) {
    MATRIX_SUM m;
    [[unroll]] for (uint e = 0; e < 8; e++)
        m[e] = x[e / 4];
    return m;
}

// ---- results ----------------------------------------------------------------------------------------------------------

// Of the other subgroup that has the rows of this one.
#define OTHER_LANE ((gl_SubgroupID + ROW_GROUPS) % SUBGROUPS * 32 + gl_SubgroupInvocationID)

#if FEATURE_GROUPS > 1
// Both groups have one largest score of a row; the weights of all keys are those of both.
void merge(inout vec2 most, inout vec2 sum) {
    barrier();
    beside[gl_SubgroupID * 32 + gl_SubgroupInvocationID].xy = floatBitsToUint(sum);
    barrier();
    sum += uintBitsToFloat(beside[OTHER_LANE].xy);
}
#elif KEY_GROUPS > 1
#define HALF_BLOCKS (BLOCKS / 2)
// Where a lane leaves its part of the outputs for the other subgroup of its rows, and finds that of the other.
#define PASSED(to, i) (((to) * ROW_GROUPS + row_group) * (BLOCKS * 32) + (i) * 32 + gl_SubgroupInvocationID)

vec4 four(MATRIX_SUM m, uint part) { return vec4(m[part * 4], m[part * 4 + 1], m[part * 4 + 2], m[part * 4 + 3]); }

// Passes on the outputs of features that the other group of keys ends, `theirs`, lane by lane.
#define PASS(theirs) \
    [[unroll]] for (uint i = 0; i < BLOCKS; i++) \
        tile[PASSED(theirs, i)] = floatBitsToUint(four(outputs[(theirs) * HALF_BLOCKS + i / 2], i % 2));
#define TAKE(own) \
    [[unroll]] for (uint i = 0; i < BLOCKS; i++) { \
        vec4 x = uintBitsToFloat(tile[PASSED(own, i)]); \
        [[unroll]] for (uint e = 0; e < 4; e++) { \
            outputs[(own) * HALF_BLOCKS + i / 2][i % 2 * 4 + e] = \
                outputs[(own) * HALF_BLOCKS + i / 2][i % 2 * 4 + e] * mine[i % 2] + x[e] * other[i % 2]; \
        } \
    }

// Each group of keys ends half of the features of its rows with what the other one has of them.
void merge(inout vec2 most, inout vec2 sum) {
    barrier();
    if (key_group == 0) {
        PASS(1)
    } else {
        PASS(0)
    }
    beside[gl_SubgroupID * 32 + gl_SubgroupInvocationID] = floatBitsToUint(vec4(most, sum));
    barrier();
    vec4 m = uintBitsToFloat(beside[OTHER_LANE]);
    vec2 peak = max(most, m.xy), mine = exp2(most - peak), other = exp2(m.xy - peak);
    sum = sum * mine + m.zw * other;
    most = peak;
    if (key_group == 0) {
        TAKE(0)
    } else {
        TAKE(1)
    }
}
#endif

void store_four(uint64_t row, uint d, vec4 x) {
    if (DTYPE_OUT == DTYPE_F32) F32x4s(row).v[d / 4] = x;
    else if (DTYPE_OUT == DTYPE_F16) U32x2s(row).v[d / 4] = uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
    else U32x2s(row).v[d / 4] = uvec2(bf16_bits(x.x) | bf16_bits(x.y) << 16, bf16_bits(x.z) | bf16_bits(x.w) << 16);
}

// 16 rows of the subgroup, PART * 16 of their features: matrices from `from` on, which have features from `feature` on.
void store_part(uint from, uint feature) {
    uint place = gl_SubgroupID * 16 * PART_STRIDE;
    [[unroll]] for (uint i = 0; i < PART; i++)
        coopMatStore(outputs[from + i], tile, place + i * 4, PART_STRIDE, ROW_MAJOR);
    subgroupBarrier();
    [[unroll]] for (uint i = 0; i < PART * 2; i++) {
        uint f = gl_SubgroupInvocationID + i * 32, row = row0 + row_group * 16 + f / (PART * 4), d = feature + f % (PART * 4) * 4;
        uvec2 at = row_place(row);
        uint64_t to = row_address_in(gl_WorkGroupID.z, pc.address[4], pc.p.out_strides, at.x, at.y, DTYPE_OUT);
        vec4 x = uintBitsToFloat(tile[place + f / (PART * 4) * PART_STRIDE + f % (PART * 4)]);
        if (row < rows && d < FEATURES) store_four(to, d, x);
    }
    subgroupBarrier();
}

// Not a loop, because the outputs must stay in registers.
void store_outputs() {
#if FEATURE_GROUPS > 1
    uint feature = key_group * (HEAD_DIM / 2);
    store_part(0, feature);
    store_part(2, feature + 32);
    store_part(4, feature + 64);
    store_part(6, feature + 96);
#elif KEY_GROUPS > 1
    if (key_group == 0) store_part(0, 0);
    else store_part(PART, HEAD_DIM / 2);
#else
    store_part(0, 0);
    store_part(PART, HEAD_DIM / 2);
#endif
}

// Outputs, and what this subgroup has of them, of 16 keys whose values begin at `place`.
void add_values(MATRIX_A weights, uint place) {
    [[unroll]] for (uint i = 0; i < OUTPUTS; i++) {
        MATRIX_B value;
        coopMatLoad(value, tile, place + i * 2, STRIDE, ROW_MAJOR);
        outputs[i] = coopMatMulAdd(weights, value, outputs[i]);
    }
}

void scale_outputs(vec2 by) {
    MATRIX_SUM factor = by_row(by);
    [[unroll]] for (uint i = 0; i < OUTPUTS; i++)
        outputs[i] = outputs[i] * factor;
}

// Weights of scores beside the largest ones of rows, which are added to `sum`.
MATRIX_A weigh(MATRIX_SUM scores, vec2 most, inout vec2 sum) {
    MATRIX_A weights;
    [[unroll]] for (uint e = 0; e < 8; e++) {
        float weight = exp2(scores[e] - most[e / 4]);
        sum[e / 4] += weight;
        weights[e] = float16_t(weight);
    }
    return weights;
}

#if FEATURE_GROUPS > 1
// Weights that were made beside other largest scores.
MATRIX_A rescale(uvec4 pairs, vec2 by) {
    MATRIX_A weights;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        vec2 x = unpackHalf2x16(pairs[i]) * by[i / 2];
        weights[2 * i] = float16_t(x.x);
        weights[2 * i + 1] = float16_t(x.y);
    }
    return weights;
}

// Both subgroups of the rows weigh the 16 keys of each; their values begin at `place`. `now` are the largest scores of this subgroup so far.
void weigh_together(MATRIX_SUM scores, uint place, vec2 now, inout vec2 most, inout vec2 sum) {
    uvec4 own;
    vec2 own_sum = vec2(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        vec2 weight = exp2(vec2(scores[2 * i], scores[2 * i + 1]) - now[i / 2]);
        own_sum[i / 2] += weight.x + weight.y;
        own[i] = packHalf2x16(weight);
    }
    uint lane = gl_SubgroupID * 32 + gl_SubgroupInvocationID;
    beside[lane] = own;
    peaks[lane] = now;
    barrier();
    vec2 theirs = peaks[OTHER_LANE], both = max(now, theirs), shrink = exp2(most - both), mine = exp2(now - both);
    sum = sum * shrink + own_sum * mine;
    most = both;
    scale_outputs(shrink);
    add_values(rescale(own, mine), place + key_group * 16 * STRIDE);
    add_values(rescale(beside[OTHER_LANE], exp2(theirs - both)), place + (1 - key_group) * 16 * STRIDE);
}
#endif

// Scores, weights and values of a tile of keys. `own` has the lane's elements of a sum matrix (spread_queries), and `limit` the keys that its two
// rows see. All rows of the subgroup see `least` of them. `most` are the largest scores so far, `sum` the weights.
void attend(uint first, uint end, uint turn, uvec3 own, uint least, uvec2 limit, inout vec2 most, inout vec2 sum) {
    barrier();
    store_keys(first, turn);
    barrier();
    if (first + AHEAD * KEYS < end) load_keys(first + AHEAD * KEYS, turn);
    uint from = first + key_group * KEYS_EACH, place = key_group * KEYS_EACH * STRIDE;

    MATRIX_SUM scores[SCORES * CHAINS];
    [[unroll]] for (uint j = 0; j < SCORES * CHAINS; j++)
        scores[j] = MATRIX_SUM(0.0);
    [[unroll]] for (uint i = 0; i < BLOCKS; i++) {
        [[unroll]] for (uint j = 0; j < SCORES; j++) {
            MATRIX_B key;
            coopMatLoad(key, tile, place + j * 16 * STRIDE + i * 2, STRIDE, COLUMN_MAJOR);
            scores[j + i % CHAINS] = coopMatMulAdd(queries[i], key, scores[j + i % CHAINS]);
        }
    }
    if (CHAINS > 1) scores[0] = scores[0] + scores[CHAINS - 1];
    if (from + KEYS_EACH > least) {
        [[unroll]] for (uint j = 0; j < SCORES; j++) {
            [[unroll]] for (uint e = 0; e < 8; e++) {
                uint column = own.z >> (e % 4 * 8) & 255u, side = e / 4;
                if (from + j * 16 + column >= limit[side]) scores[j][e] = LOWEST;
            }
        }
    }
    // A row that has seen nothing yet weighs what it does not see; its first key brings that to 0.
    if (WINDOW != 0 && from + WINDOW < row_limit(row0 + row_group * 16 + 15)) {
        [[unroll]] for (uint j = 0; j < SCORES; j++) {
            [[unroll]] for (uint e = 0; e < 8; e++) {
                uint column = own.z >> (e % 4 * 8) & 255u, side = e / 4;
                if (from + j * 16 + column + WINDOW < limit[side]) scores[j][e] = LOWEST;
            }
        }
    }
    vec2 now = most;
    [[unroll]] for (uint j = 0; j < SCORES; j++) {
        [[unroll]] for (uint e = 0; e < 8; e++)
            now[e / 4] = max(now[e / 4], scores[j][e]);
    }
    now = vec2(row_max(now.x), row_max(now.y));
#if FEATURE_GROUPS > 1
    weigh_together(scores[0], VALUES + key_group * (OUTPUTS * 2), now, most, sum);
#else
    vec2 shrink = exp2(most - now);
    most = now;
    sum *= shrink;
    scale_outputs(shrink);
    [[unroll]] for (uint j = 0; j < SCORES; j++) {
        MATRIX_A weights = weigh(scores[j], most, sum);
        add_values(weights, VALUES + place + j * 16 * STRIDE);
    }
#endif
}

void main() {
    rows = pc.p.q_len * GROUP;
    uint batches = gl_NumWorkGroups.z / SPLITS;
    batch = gl_WorkGroupID.z % batches;
    split = gl_WorkGroupID.z / batches;
    kv_head = gl_WorkGroupID.x;
    uint tiles = gl_NumWorkGroups.y, y = gl_WorkGroupID.y;
#if SUBGROUPS < 8
    // A multiprocessor runs two workgroups at once: first come the longer ones, longest first, then each gets a shorter one, shortest first.
    row0 = (2 * y < tiles ? tiles - 1 - y : y - (tiles + 1) / 2) * ROWS;
#else
    row0 = (tiles - 1 - y) * ROWS; // the longest first
#endif
    row_group = gl_SubgroupID % ROW_GROUPS;
    key_group = gl_SubgroupID / ROW_GROUPS;
    if (row0 >= rows) return;
    k_address = kv_head_address(pc.address[1], pc.p.k_strides, batch, kv_head);
    v_address = kv_head_address(pc.address[2], pc.p.v_strides, batch, kv_head);
    if (PAGE != 0) kv_pages = pc.address[6] + uint64_t(batch) * (pc.p.kv_len / PAGE * 4);
    uvec4 raw[QUERY_LOADS];
    page_ahead = page_of(0);
    load_queries(raw);
    if (SPLITS == 1 && WINDOW == 0) load_first(0); // waits for no length, as the share of a split and a window do
    kv_length = HAS_LENGTHS != 0 ? uint(clamp(I32s(pc.address[3]).v[HAS_LENGTHS == 2 ? batch : 0], 0, int(pc.p.kv_len))) : pc.p.kv_len;
    uint end = row_limit(row0 + ROWS - 1), first = 0;
    if (SPLITS > 1 || WINDOW != 0) {
        uint limit = row_limit(row0), skipped = WINDOW != 0 && limit > WINDOW ? (limit - WINDOW) / KEYS : 0;
        uint steps = (end + KEYS - 1) / KEYS - skipped;
        first = (skipped + steps * split / SPLITS) * KEYS;
        end = min(end, (skipped + steps * (split + 1) / SPLITS) * KEYS);
        page_ahead = page_of(first);
        load_first(first);
    }
    uvec3 own = spread_queries(raw);
    uint first_row = row0 + row_group * 16;
    uint least = row_limit(first_row);
    uvec2 limit = uvec2(row_limit(first_row + own.x), row_limit(first_row + own.y));
    vec2 most = vec2(LOWEST), sum = vec2(0.0);
    [[unroll]] for (uint i = 0; i < OUTPUTS; i++)
        outputs[i] = MATRIX_SUM(0.0);

    [[dont_unroll]] for (; first < end; first += AHEAD * KEYS) {
        attend(first, end, 0, own, least, limit, most, sum);
        if (CODED && first + KEYS < end) attend(first + KEYS, end, 1, own, least, limit, most, sum);
    }
#if KEY_GROUPS > 1
    merge(most, sum);
#endif
    sum = vec2(row_sum(sum.x), row_sum(sum.y));
    if (SPLITS > 1 && key_group == 0 && (own.z & 255u) == 0) {
        [[unroll]] for (uint i = 0; i < 2; i++) {
            uint row = first_row + own[i];
            uvec2 at = row_place(row);
            uint heads = GROUP * gl_NumWorkGroups.x;
            if (row < rows) F32x2s(pc.address[5]).v[(gl_WorkGroupID.z * pc.p.q_len + at.y) * heads + at.x] = vec2(most[i], sum[i]);
        }
    }
    // A row that saw no key has none.
    scale_outputs(vec2(limit.x > 0 && sum.x > 0.0 ? 1.0 / sum.x : 0.0, limit.y > 0 && sum.y > 0.0 ? 1.0 / sum.y : 0.0));
    barrier(); // all are done with the keys, or with what they were passed
    store_outputs();
}
