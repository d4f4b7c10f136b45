// The epilogue of coopmat_qkv on its sums. The columns are heads, [HEADS of q | KV_HEADS of k | KV_HEADS of v] of HEAD_DIM
// each, a divisor of 128. With QKV_BIAS, a bias (N,) is added first. With HEAD_NORM, heads of q and k are normalised, y
// = x / sqrt(mean of x^2 + eps) * weight. Then they are rotated half by half, or as include/rope_place.glsl says, by the angles of
// rope_table. All go to out
// (m, all heads) in float16, within its range; k and v also into the cache (include/kv_address.glsl), and without KEEP
// there alone.
//
// m = batch * seq rows. They enter the caches from position start[0] on, clamped so that all fit; caches may be
// absent. With PER_SEQUENCE each sequence has a start and angles of its own: start (batch,), table (m, HEAD_DIM / 2, 2).
// Where PAGE is not 0, positions are in pages; rows for which a sequence has none are left out of the caches. Pages may have
// codes (include/kv_codes.glsl), with DTYPE_KV DTYPE_U8.
// 16 or 32 rows at a time go through shared memory. Eight threads share a row; each has quad i of both halves of one
// head, twice.

#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 6) const uint HEADS = 1; // 0 where only k and v are wanted
layout(constant_id = 7) const uint KV_HEADS = 1;
layout(constant_id = 8) const uint HEAD_DIM = 128;
layout(constant_id = 9) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 10) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 11) const uint BLOCK_KEYS = 128;
layout(constant_id = 12) const uint BLOCK_VALUES = 128;
layout(constant_id = 13) const uint KEEP = 1;
layout(constant_id = 14) const uint HEAD_NORM = 1;
layout(constant_id = 15) const uint QKV_BIAS = 0;
layout(constant_id = 16) const uint PER_SEQUENCE = 0;
layout(constant_id = 17) const uint PAGE = 0;
layout(constant_id = 18) const uint ROPE_DIMS = 0; // features of a head that are rotated; 0 for all

const uint QUADS = HEAD_DIM / 8; // of half a head
const uint TABLE = 5, Q_NORM = 6, K_NORM = 7, START = 8, KEYS = 9, VALUES = 10, BIAS = 11, PAGES = 12;

#define OWN_BLOCKS
#define PAGE_TABLE pc.address[PAGES]
#include "include/kv_address.glsl"
#include "include/kv_codes.glsl"
#include "include/rope_place.glsl"

// A row: its sequence, and its place in it.
uvec2 place_of(uint row) {
    uint sequence = row / pc.p.seq;
    return uvec2(sequence, row - sequence * pc.p.seq);
}

// Where the thread works on the same quads of every row, what it needs of their head is loaded once.
struct Quad {
    uint head, i;
    vec4 weight_a, weight_b, bias_a, bias_b;
};

// The quads of a head that are rotated together.
uint quad_a(uint i) { return rope_quad(i); }
uint quad_b(uint i) { return rope_quad(QUADS + i); }

bool is_query(uint head) { return head < HEADS; }
bool is_value(uint head) { return head >= HEADS + KV_HEADS; }

Quad quad_of(uint at) {
    Quad q;
    q.head = column0 / HEAD_DIM + at / QUADS;
    q.i = at % QUADS;
    if (HEAD_NORM != 0 && !is_value(q.head)) {
        uint64_t weight = pc.address[is_query(q.head) ? Q_NORM : K_NORM];
        q.weight_a = load_quad(weight, quad_a(q.i), DTYPE_WEIGHT);
        q.weight_b = load_quad(weight, quad_b(q.i), DTYPE_WEIGHT);
    }
    if (QKV_BIAS != 0) {
        uint first = min(q.head, N / HEAD_DIM - 1) * 2 * QUADS; // heads beyond the end are padding
        q.bias_a = load_quad(pc.address[BIAS], first + quad_a(q.i), DTYPE_WEIGHT);
        q.bias_b = load_quad(pc.address[BIAS], first + quad_b(q.i), DTYPE_WEIGHT);
    }
    return q;
}

// Brings four features of a head to a cache whose blocks have `block` features.
void append(uint64_t cache, uint block, uvec2 place, uint head, uint feature, vec4 x) {
    uint64_t to = kv_address(cache, block, place, head, feature / block) + feature % block * KV_BYTES;
    if (DTYPE_KV == DTYPE_U8) U32s(to).v[0] = kv_encode(x);
    else store_quad(to, 0, DTYPE_KV, x);
}

// The first row of a sequence in the caches. In pages, negative ones become the largest ones.
uint start_of(uint sequence) {
    if (pc.address[START] == 0ul) return 0;
    int start = I32s(pc.address[START]).v[sequence];
    if (PAGE != 0) return uint(start);
    return uint(clamp(start, 0, int(pc.p.capacity - pc.p.seq)));
}

// Cosines and sines in angles: those of four pairs. `place` is that of the row in the caches, if it is `kept` there.
void finish_head(uint row, uvec2 place, bool kept, Quad q, float squares, vec4 t, vec4 u, vec4 a, vec4 b) {
    bool value = is_value(q.head);
    if (!value) {
        vec4 c = vec4(t.xz, u.xz), s = vec4(t.yw, u.yw), x = a, y = b;
        if (HEAD_NORM != 0) {
            float factor = inversesqrt(squares / float(HEAD_DIM) + pc.p.eps);
            x = a * factor * q.weight_a;
            y = b * factor * q.weight_b;
        }
        a = x * c - y * s;
        b = y * c + x * s;
    }
    if (is_query(q.head) || KEEP != 0) {
        uint64_t to = pc.address[4] + (uint64_t(row) * (N / HEAD_DIM) + q.head) * (HEAD_DIM * 2);
        store_quad(to, quad_a(q.i), DTYPE_F16, within_half(a));
        store_quad(to, quad_b(q.i), DTYPE_F16, within_half(b));
    }
    uint64_t cache = pc.address[value ? VALUES : KEYS];
    if (is_query(q.head) || cache == 0ul || !kept) return;
    uint block = value ? BLOCK_VALUES : BLOCK_KEYS, head = q.head - HEADS - (value ? KV_HEADS : 0);
    append(cache, block, place, head, quad_a(q.i) * 4, a);
    append(cache, block, place, head, quad_b(q.i) * 4, b);
}

#define ROWS_AT_ONCE (WORKERS / 8)
#define ROUNDS_OF_ROWS ((16 * SUM_BLOCKS + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE)

void qkv_epilogue() {
    uint eighth = gl_LocalInvocationIndex % 8, start = start_of(0);
    Quad quads[2] = Quad[2](quad_of(eighth), quad_of(eighth + 8));
    [[dont_unroll]] for (uint block = 0; block < ROW_BLOCKS; block += SUM_BLOCKS) {
        // The angles are on their way while the sums are shared.
        uint rows[ROUNDS_OF_ROWS];
        uvec2 places[ROUNDS_OF_ROWS];
        vec4 angles[ROUNDS_OF_ROWS * 4];
        [[unroll]] for (uint round = 0; round < ROUNDS_OF_ROWS; round++) {
            rows[round] = row0 + block * 16 + round * ROWS_AT_ONCE + gl_LocalInvocationIndex / 8;
            places[round] = place_of(rows[round]);
            [[unroll]] for (uint h = 0; h < 2; h++) {
                uint at = ((PER_SEQUENCE == 0 ? places[round].y : min(rows[round], pc.p.m - 1)) * QUADS + quads[h].i) * 2;
                angles[round * 4 + h * 2] = F32x4s(pc.address[TABLE]).v[at];
                angles[round * 4 + h * 2 + 1] = F32x4s(pc.address[TABLE]).v[at + 1];
            }
        }
        share_sums(block);
        [[unroll]] for (uint round = 0; round < ROUNDS_OF_ROWS; round++) {
            uint r = min(round * ROWS_AT_ONCE + gl_LocalInvocationIndex / 8, 16 * SUM_BLOCKS - 1);
            bool inside = rows[round] < pc.p.m && round * ROWS_AT_ONCE + gl_LocalInvocationIndex / 8 < 16 * SUM_BLOCKS;
            vec4 a[2], b[2];
            if (PER_SEQUENCE != 0 && inside) start = start_of(places[round].x);
            uint position = start + places[round].y;
            bool kept = kv_has_room(position);
            uvec2 place = uvec2(0);
            if (PAGE == 0 || (inside && kept)) place = kv_place(places[round].x, position);
            vec2 squares = vec2(0.0);
            [[unroll]] for (uint h = 0; h < 2; h++) {
                uint at = eighth + 8 * h, first = at / QUADS * 2 * QUADS;
                a[h] = shared_sum(r, first + quad_a(at % QUADS));
                b[h] = shared_sum(r, first + quad_b(at % QUADS));
                if (QKV_BIAS != 0) {
                    a[h] += quads[h].bias_a;
                    b[h] += quads[h].bias_b;
                }
                if (HEAD_NORM != 0) squares[h] = dot(a[h], a[h]) + dot(b[h], b[h]);
            }
            if (HEAD_NORM != 0) {
                if (QUADS == 16) squares = vec2(squares.x + squares.y);
                [[unroll]] for (uint mask = 1; mask < 8 && mask < QUADS; mask *= 2)
                    squares += subgroupShuffleXor(squares, mask);
            }
            [[unroll]] for (uint h = 0; h < 2; h++) {
                vec4 t = angles[round * 4 + h * 2], u = angles[round * 4 + h * 2 + 1];
                if (inside && quads[h].head < N / HEAD_DIM) finish_head(rows[round], place, kept, quads[h], squares[h], t, u, a[h], b[h]);
            }
        }
    }
}
