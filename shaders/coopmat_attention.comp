#version 460
// coopmat_attention: out = softmax(scale * q . k + mask) . v for many queries at once, in 16x16x16 matrices, online over the keys.
//
// Rows are (position, query head of a group): all query heads of a kv head share its keys and values. A workgroup of SUBGROUPS serves
// 16 rows a subgroup and walks over the keys 64 at a time; keys and values go through shared memory as float16, the next ones already
// under way. Scores stay in registers: of a sum matrix a lane holds the elements 0-3 of one row and 4-7 of another in the same columns,
// four neighbouring lanes share their rows, and A has the same order, so that weights are multiplied as they come.
// Row i sees keys up to i + kv_len - q_len where CAUSAL (kv_len >= q_len). Features of a row begin at multiples of 16 bytes.
// THREADS must be 32 * SUBGROUPS. Workgroups: batch * kv_heads * ceil(q_len * heads / kv_heads / (16 * SUBGROUPS)), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require
#define BUFFERS 4
#define PUSH CoopmatAttentionPush
#include "common.glsl"

layout(constant_id = 1) const uint DTYPE_Q = DTYPE_F16;
layout(constant_id = 2) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 4) const uint CAUSAL = 1;

#include "vector.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };

#define WORKERS (32 * SUBGROUPS)
#define ROWS (16 * SUBGROUPS)
#define KEYS 64
#define EIGHTS (HEAD_DIM / 8)
#define STRIDE (EIGHTS + 1)              // uvec4 from row to row in shared memory
#define BLOCKS (HEAD_DIM / 16)
#define LOADS (KEYS * EIGHTS / WORKERS)  // uvec4 a thread of 64 keys, and of 64 values
#define VALUES (KEYS * STRIDE)           // where values begin
const float LOWEST = -1e30;

shared uvec4 tile[2 * KEYS * STRIDE]; // keys and values; before them the queries, after them the outputs

MATRIX_A queries[BLOCKS];
MATRIX_SUM outputs[BLOCKS];
uvec4 keys_next[LOADS], values_next[LOADS];
uint batch, kv_head, row0, rows, heads_each;

uint64_t row_address(uint64_t address, int strides[3], uint head, uint position, uint dtype) {
    return element_address(address, int(batch) * strides[0] + int(head) * strides[1] + int(position) * strides[2], DTYPE_BYTES(dtype));
}

// Head and position of a row; those beyond the end repeat the last one.
uvec2 row_place(uint row) {
    uint r = min(row, rows - 1);
    return uvec2(kv_head * heads_each + r % heads_each, r / heads_each);
}

uvec4 halves(vec4 a, vec4 b) {
    a = clamp(a, vec4(-65504.0), vec4(65504.0));
    b = clamp(b, vec4(-65504.0), vec4(65504.0));
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

uvec4 load_halves(uint64_t row, uint eight) {
    if (DTYPE_KV == DTYPE_F16) return U32x4s(row).v[eight];
    vec4 a, b;
    load8(row, eight * 8, DTYPE_KV, a, b);
    return halves(a, b);
}

void load_keys(uint first) {
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS, key = min(first + f / EIGHTS, pc.p.kv_len - 1);
        keys_next[i] = load_halves(row_address(pc.address[1], pc.p.k_strides, kv_head, key, DTYPE_KV), f % EIGHTS);
        values_next[i] = load_halves(row_address(pc.address[2], pc.p.v_strides, kv_head, key, DTYPE_KV), f % EIGHTS);
    }
}

void store_keys() {
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS, at = f / EIGHTS * STRIDE + f % EIGHTS;
        tile[at] = keys_next[i];
        tile[VALUES + at] = values_next[i];
    }
}

void load_queries() {
    float scale = pc.p.scale * 1.4426950408889634; // exp2 below
    for (uint f = gl_LocalInvocationIndex; f < ROWS * EIGHTS; f += WORKERS) {
        uvec2 place = row_place(row0 + f / EIGHTS);
        vec4 a, b;
        load8(row_address(pc.address[0], pc.p.q_strides, place.x, place.y, DTYPE_Q), f % EIGHTS * 8, DTYPE_Q, a, b);
        tile[f / EIGHTS * STRIDE + f % EIGHTS] = halves(a * scale, b * scale);
    }
    barrier();
    [[unroll]] for (uint i = 0; i < BLOCKS; i++) coopMatLoad(queries[i], tile, gl_SubgroupID * 16 * STRIDE + i * 2, STRIDE, ROW_MAJOR);
}

// The lane's elements of a sum matrix: x, y its two rows, z the columns of elements 0-3 as four bytes.
uvec3 own_elements() {
    for (uint i = gl_LocalInvocationIndex; i < 64; i += WORKERS) tile[i] = floatBitsToUint(vec4(i * 4) + vec4(0, 1, 2, 3));
    barrier();
    MATRIX_SUM index;
    coopMatLoad(index, tile, 0, 4, ROW_MAJOR);
    barrier();
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
    [[unroll]] for (uint e = 0; e < 8; e++) m[e] = x[e / 4];
    return m;
}

void store_four(uint64_t row, uint d, vec4 x) {
    if (DTYPE_OUT == DTYPE_F32) F32x4s(row).v[d / 4] = x;
    else if (DTYPE_OUT == DTYPE_F16) U32x2s(row).v[d / 4] = uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
    else U32x2s(row).v[d / 4] = uvec2(bf16_bits(x.x) | bf16_bits(x.y) << 16, bf16_bits(x.z) | bf16_bits(x.w) << 16);
}

// 16 rows of the subgroup, a half of their features.
void store_half(uint part) {
    uint place = gl_SubgroupID * 16 * STRIDE;
    [[unroll]] for (uint i = 0; i < BLOCKS / 2; i++) coopMatStore(outputs[part * (BLOCKS / 2) + i], tile, place + i * 4, STRIDE, ROW_MAJOR);
    subgroupBarrier();
    [[dont_unroll]] for (uint f = gl_SubgroupInvocationID; f < 16 * EIGHTS; f += 32) {
        uint row = row0 + gl_SubgroupID * 16 + f / EIGHTS;
        uvec2 at = row_place(row);
        uint64_t to = row_address(pc.address[3], pc.p.out_strides, at.x, at.y, DTYPE_OUT);
        if (row < rows) store_four(to, part * (HEAD_DIM / 2) + f % EIGHTS * 4, uintBitsToFloat(tile[place + f / EIGHTS * STRIDE + f % EIGHTS]));
    }
    subgroupBarrier();
}

// Keys that a row sees.
uint row_limit(uint row) { return CAUSAL != 0 ? row_place(row).y + pc.p.kv_len - pc.p.q_len + 1 : pc.p.kv_len; }

void main() {
    heads_each = pc.p.heads / pc.p.kv_heads;
    rows = pc.p.q_len * heads_each;
    uint pairs = pc.p.batch * pc.p.kv_heads, tiles = (rows + ROWS - 1) / ROWS, group = flat_workgroup();
    if (group >= pairs * tiles) return;
    batch = group % pairs / pc.p.kv_heads;
    kv_head = group % pairs % pc.p.kv_heads;
    row0 = (tiles - 1 - group / pairs) * ROWS; // the longest first

    uvec3 own = own_elements();
    load_queries();
    uint first_row = row0 + gl_SubgroupID * 16, end = row_limit(row0 + ROWS - 1), least = row_limit(first_row);
    uvec2 limit = uvec2(row_limit(first_row + own.x), row_limit(first_row + own.y));
    vec2 most = vec2(LOWEST), sum = vec2(0.0);
    [[unroll]] for (uint i = 0; i < BLOCKS; i++) outputs[i] = MATRIX_SUM(0.0);
    load_keys(0);

    [[dont_unroll]] for (uint first = 0; first < end; first += KEYS) {
        barrier();
        store_keys();
        barrier();
        load_keys(first + KEYS);

        MATRIX_SUM scores[4];
        [[unroll]] for (uint j = 0; j < 4; j++) scores[j] = MATRIX_SUM(0.0);
        [[unroll]] for (uint i = 0; i < BLOCKS; i++) {
            [[unroll]] for (uint j = 0; j < 4; j++) {
                MATRIX_B key;
                coopMatLoad(key, tile, j * 16 * STRIDE + i * 2, STRIDE, COLUMN_MAJOR);
                scores[j] = coopMatMulAdd(queries[i], key, scores[j]);
            }
        }
        if (first + KEYS > least) {
            [[unroll]] for (uint j = 0; j < 4; j++) {
                [[unroll]] for (uint e = 0; e < 8; e++) {
                    uint column = own.z >> (e % 4 * 8) & 255u, side = e / 4;
                    if (first + j * 16 + column >= limit[side]) scores[j][e] = LOWEST;
                }
            }
        }
        vec2 now = most;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            [[unroll]] for (uint e = 0; e < 8; e++) now[e / 4] = max(now[e / 4], scores[j][e]);
        }
        now = vec2(row_max(now.x), row_max(now.y));
        vec2 shrink = exp2(most - now);
        most = now;
        sum *= shrink;
        MATRIX_SUM factor = by_row(shrink);
        [[unroll]] for (uint i = 0; i < BLOCKS; i++) outputs[i] = outputs[i] * factor;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            MATRIX_A weights;
            [[unroll]] for (uint e = 0; e < 8; e++) {
                float weight = exp2(scores[j][e] - most[e / 4]);
                sum[e / 4] += weight;
                weights[e] = float16_t(weight);
            }
            [[unroll]] for (uint i = 0; i < BLOCKS; i++) {
                MATRIX_B value;
                coopMatLoad(value, tile, VALUES + j * 16 * STRIDE + i * 2, STRIDE, ROW_MAJOR);
                outputs[i] = coopMatMulAdd(weights, value, outputs[i]);
            }
        }
    }
    MATRIX_SUM factor = by_row(1.0 / vec2(row_sum(sum.x), row_sum(sum.y)));
    [[unroll]] for (uint i = 0; i < BLOCKS; i++) outputs[i] = outputs[i] * factor;
    barrier(); // all are done with the keys
    store_half(0); // not a loop, because the outputs must stay in registers
    store_half(1);
}
