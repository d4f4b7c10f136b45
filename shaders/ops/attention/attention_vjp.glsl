// The common part of the gradients of attention: tiles of rows of two arrays, their products, masks.
//
// A workgroup has TILE rows of one kind, queries or keys, and walks over tiles of TILE columns of the other. Its threads lie as THREADS /
// 16 by 16 over a tile: thread (y, x) has rows y, y + THREADS / 16, … and columns x, x + 16, …. Products of tiles go through shared
// memory DEPTH features, or columns, at a time; sums are float32, each one thread's in the order of columns. THREADS is a multiple of 16 of at
// least TILE, and divides 16 TILE.
//
// q, the cotangent and stats (log-sum-exp and delta of each query row) are contiguous. Head h reads kv head h / (heads / kv_heads).

#define PUSH AttentionVjpPush
#include "include/common.glsl"

layout(constant_id = 1) const uint HEAD_DIM = 128;
layout(constant_id = 2) const uint V_DIM = 128;
layout(constant_id = 3) const uint DTYPE_Q = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_KV = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_C = DTYPE_F32;
layout(constant_id = 6) const uint MASK_MODE = MASK_NONE;
layout(constant_id = 7) const uint DTYPE_MASK = DTYPE_BOOL;
layout(constant_id = 8) const uint HAS_LENGTHS = 0;
layout(constant_id = 9) const uint TILE = 32;

#define KV_STRIDES
#include "include/kv_address.glsl"

const uint DEPTH = 16u;
const uint LINES = THREADS / 16u;
const uint DOWN = TILE / LINES; // rows of a thread
const uint ALONG = TILE / 16u;  // its columns
const uint PITCH = TILE + 1u;
const float LOWEST = -3.4028235e38;
#define INFINITE uintBitsToFloat(0x7f800000u)

shared float left[DEPTH * PITCH], right[DEPTH * PITCH]; // [feature or column][row]
shared float weights[TILE * PITCH];                     // [row][column]

uint batch, head, kv_head, kv_length;

// Rows of an array, of which `count` are there; others read as 0.
struct Rows {
    uint64_t address;
    int stride;
    uint count;
};

uint line() { return gl_LocalInvocationID.x / 16u; }
uint place() { return gl_LocalInvocationID.x % 16u; }

uint64_t query_line(uint query) { return (uint64_t(batch) * pc.p.heads + head) * pc.p.q_len + query; }

// Rows from `first` on, up to `end`.
Rows rows_of(uint64_t address, int stride, uint first, uint end) {
    return Rows(address, stride, end > first ? min(TILE, end - first) : 0u);
}
Rows queries_at(uint first) {
    return rows_of(pc.address[0] + query_line(first) * (HEAD_DIM * DTYPE_BYTES(DTYPE_Q)), int(HEAD_DIM), first, pc.p.q_len);
}
Rows cotangents_at(uint first) {
    return rows_of(pc.address[5] + query_line(first) * (V_DIM * DTYPE_BYTES(DTYPE_C)), int(V_DIM), first, pc.p.q_len);
}
Rows kv_at(uint64_t address, int strides[3], uint first) {
    uint64_t row = kv_address(kv_head_address(address, strides, batch, kv_head), strides, first, 0);
    return rows_of(row, strides[2], first, kv_length);
}
Rows keys_at(uint first) { return kv_at(pc.address[1], pc.p.k_strides, first); }
Rows values_at(uint first) { return kv_at(pc.address[2], pc.p.v_strides, first); }

float row_element(Rows r, uint row, uint d, uint dim, uint dtype) {
    if (row >= r.count || d >= dim) return 0.0;
    return load_float(element_address(r.address, int(row) * r.stride, DTYPE_BYTES(dtype)), d, dtype);
}

void set_batch(uint b) {
    batch = b;
    kv_length = HAS_LENGTHS != 0 ? uint(clamp(I32s(pc.address[4]).v[HAS_LENGTHS == 2 ? batch : 0], 0, int(pc.p.kv_len))) : pc.p.kv_len;
}

// sums[m * ALONG + n] = a[row] . b[column], of the rows and columns of the thread.
float sums[DOWN * ALONG];
void multiply_rows(Rows a, uint dtype_a, Rows b, uint dtype_b, uint dim) {
    [[unroll]] for (uint i = 0; i < DOWN * ALONG; i++)
        sums[i] = 0.0;
    for (uint d0 = 0; d0 < dim; d0 += DEPTH) {
        barrier();
        for (uint i = gl_LocalInvocationID.x; i < TILE * DEPTH; i += THREADS) {
            uint row = i / DEPTH, d = i % DEPTH;
            left[d * PITCH + row] = row_element(a, row, d0 + d, dim, dtype_a);
            right[d * PITCH + row] = row_element(b, row, d0 + d, dim, dtype_b);
        }
        barrier();
        for (uint d = 0; d < DEPTH; d++) {
            float x[ALONG];
            [[unroll]] for (uint n = 0; n < ALONG; n++)
                x[n] = right[d * PITCH + place() + 16u * n];
            [[unroll]] for (uint m = 0; m < DOWN; m++) {
                float y = left[d * PITCH + line() + LINES * m];
                [[unroll]] for (uint n = 0; n < ALONG; n++)
                    sums[m * ALONG + n] = fma(y, x[n], sums[m * ALONG + n]);
            }
        }
    }
}

// out[row][feature] += sum over columns of weights[row][column] * b[column][feature]: out has the thread's rows, and of
// every TILE features those at the places of its columns. Weights are read after a barrier.
#define ADD_ROWS(name, out, DIM) \
    float out[(DIM + TILE - 1u) / TILE * DOWN * ALONG]; \
    void name(Rows b, uint dtype) { \
        [[unroll]] for (uint f0 = 0; f0 < DIM; f0 += TILE) { \
            for (uint j0 = 0; j0 < b.count; j0 += DEPTH) { \
                barrier(); \
                for (uint i = gl_LocalInvocationID.x; i < TILE * DEPTH; i += THREADS) { \
                    right[i / TILE * PITCH + i % TILE] = row_element(b, j0 + i / TILE, f0 + i % TILE, DIM, dtype); \
                } \
                barrier(); \
                for (uint j = 0; j < DEPTH; j++) { \
                    float x[ALONG]; \
                    [[unroll]] for (uint n = 0; n < ALONG; n++) \
                        x[n] = right[j * PITCH + place() + 16u * n]; \
                    [[unroll]] for (uint m = 0; m < DOWN; m++) { \
                        float y = weights[(line() + LINES * m) * PITCH + j0 + j]; \
                        [[unroll]] for (uint n = 0; n < ALONG; n++) { \
                            uint at = (f0 / TILE * DOWN + m) * ALONG + n; \
                            out[at] = fma(y, x[n], out[at]); \
                        } \
                    } \
                } \
            } \
        } \
    }

// The thread's part of rows of `DIM` features to memory, where `row` < count.
#define STORE_ROWS(out, DIM, address, dtype, count) \
    [[unroll]] for (uint m = 0; m < DOWN; m++) { \
        uint row = line() + LINES * m; \
        [[unroll]] for (uint f0 = 0; f0 < DIM; f0 += TILE) { \
            [[unroll]] for (uint n = 0; n < ALONG; n++) { \
                uint d = f0 + place() + 16u * n; \
                if (row < count && d < DIM) \
                    store_float((address) + uint64_t(row) * (DIM * DTYPE_BYTES(dtype)), d, dtype, \
                                out[(f0 / TILE * DOWN + m) * ALONG + n]); \
            } \
        } \
    }

#define CLEAR(out, DIM) \
    [[unroll]] for (uint i = 0; i < (DIM + TILE - 1u) / TILE * DOWN * ALONG; i++) \
        out[i] = 0.0;

// The score of a query and a key; LOWEST where it must not see that.
float masked(float score, uint query, uint key) {
    if (query >= pc.p.q_len || key >= kv_length) return LOWEST;
    if (MASK_MODE == MASK_CAUSAL) return int(key) > int(query + kv_length) - int(pc.p.q_len) ? LOWEST : score;
    if (MASK_MODE == MASK_NONE) return score;
    int i = int(batch) * pc.p.mask_strides[0] + int(head) * pc.p.mask_strides[1] + int(query) * pc.p.mask_strides[2] +
            int(key) * pc.p.mask_strides[3];
    uint64_t element = element_address(pc.address[3], i, DTYPE_BYTES(DTYPE_MASK));
    if (MASK_MODE == MASK_ADD) return score + load_float(element, 0, DTYPE_MASK);
    return load_bits(element, 0, DTYPE_MASK) != 0u ? score : LOWEST;
}

// Keys that any of the queries from `first` on sees lie before this.
uint end_of_keys(uint first) {
    if (MASK_MODE != MASK_CAUSAL) return kv_length;
    int last = int(min(first + TILE, pc.p.q_len)) - 1;
    return uint(clamp(last + int(kv_length) - int(pc.p.q_len) + 1, 0, int(kv_length)));
}
