// What coopmat_heads does with its sums: the columns are heads, [HEADS of q | KV_HEADS of k | KV_HEADS of v] of HEAD_DIM each, a divisor of 128.
// Heads of q and k are normalised, y = x / sqrt(mean of x^2 + eps) * weight, and turned half by half by the angles of rope_table. All go to
// out (m, all heads) in float16, within its range; k and v also into the cache, and without KEEP there alone.
//
// m = batch * seq rows. Caches (batch, KV_HEADS, HEAD_DIM / BLOCK, capacity, BLOCK), from row start[0] on, clamped so that all fit; they may be
// absent. 32 rows at a time go through shared memory; eight threads share a row, each has quad i of both halves of one head, twice.

#extension GL_KHR_shader_subgroup_shuffle : require
#include "quads.glsl"

layout(constant_id = 7) const uint HEADS = 1; // 0 where only k and v are wanted
layout(constant_id = 8) const uint KV_HEADS = 1;
layout(constant_id = 9) const uint HEAD_DIM = 128;
layout(constant_id = 10) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 11) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 12) const uint BLOCK_KEYS = 128;
layout(constant_id = 13) const uint BLOCK_VALUES = 128;
layout(constant_id = 14) const uint KEEP = 1;

const uint QUADS = HEAD_DIM / 8; // of half a head
const uint TABLE = 5, Q_NORM = 6, K_NORM = 7, START = 8, KEYS = 9, VALUES = 10;

void append(uint64_t cache, uint block, uint row, uint head, uint quad, vec4 x) {
    if (cache == 0ul) return;
    uint start = uint(clamp(I32s(pc.address[START]).v[0], 0, int(pc.p.capacity - pc.p.seq))), feature = quad * 4;
    uint heads_before = row / pc.p.seq * KV_HEADS + head, position = start + row % pc.p.seq;
    uint at = ((heads_before * (HEAD_DIM / block) + feature / block) * pc.p.capacity + position) * block + feature % block;
    store_quad(cache, at / 4, DTYPE_KV, x);
}

void finish_head(uint row, uint head, uint i, float squares, vec4 a, vec4 b) {
    bool query = head < HEADS, value = head >= HEADS + KV_HEADS;
    if (!value) {
        float factor = inversesqrt(squares / float(HEAD_DIM) + pc.p.eps);
        uint64_t weight = pc.address[query ? Q_NORM : K_NORM];
        a *= factor * load_quad(weight, i, DTYPE_WEIGHT);
        b *= factor * load_quad(weight, QUADS + i, DTYPE_WEIGHT);
        uint turns = (row % pc.p.seq * QUADS + i) * 2;
        vec4 t = F32x4s(pc.address[TABLE]).v[turns], u = F32x4s(pc.address[TABLE]).v[turns + 1];
        vec4 c = vec4(t.xz, u.xz), s = vec4(t.yw, u.yw), x = a;
        a = x * c - b * s;
        b = b * c + x * s;
    }
    if (query || KEEP != 0) {
        uint64_t to = pc.address[4] + (uint64_t(row) * (N / HEAD_DIM) + head) * (HEAD_DIM * 2);
        store_quad(to, i, DTYPE_F16, clamp(a, vec4(-65504.0), vec4(65504.0)));
        store_quad(to, QUADS + i, DTYPE_F16, clamp(b, vec4(-65504.0), vec4(65504.0)));
    }
    if (query) return;
    uint64_t cache = pc.address[value ? VALUES : KEYS];
    uint block = value ? BLOCK_VALUES : BLOCK_KEYS, kv_head = head - HEADS - (value ? KV_HEADS : 0);
    append(cache, block, row, kv_head, i, a);
    append(cache, block, row, kv_head, QUADS + i, b);
}

void store_sums(uint first) {
    [[unroll]] for (uint i = 0; i < 2; i++) {
        [[unroll]] for (uint j = 0; j < 2; j++)
            coopMatStore(sums[(first + i) * 2 + j], tile, i * 16 * HEAD_STRIDE + gl_SubgroupID * 8 + j * 4, HEAD_STRIDE, ROW_MAJOR);
    }
}

void finish_heads() {
    uint eighth = gl_LocalInvocationIndex % 8;
    [[dont_unroll]] for (uint part = 0; part < ROWS / 32; part++) {
        barrier();
        // The sums stay in registers, so their numbers must be constants.
        if (part == 0) store_sums(0);
#if ROW_BLOCKS > 2
        else store_sums(2);
#endif
        barrier();
        [[dont_unroll]] for (uint r = gl_LocalInvocationIndex / 8; r < 32; r += 16) {
            uint row = row0 + part * 32 + r;
            vec4 a[2], b[2];
            vec2 squares;
            [[unroll]] for (uint h = 0; h < 2; h++) {
                uint i = eighth + 8 * h, at = r * HEAD_STRIDE + i / QUADS * 2 * QUADS + i % QUADS;
                a[h] = uintBitsToFloat(tile[at]);
                b[h] = uintBitsToFloat(tile[at + QUADS]);
                squares[h] = dot(a[h], a[h]) + dot(b[h], b[h]);
            }
            if (QUADS == 16) squares = vec2(squares.x + squares.y);
            [[unroll]] for (uint mask = 1; mask < 8 && mask < QUADS; mask *= 2) squares += subgroupShuffleXor(squares, mask);
            [[unroll]] for (uint h = 0; h < 2; h++) {
                uint i = eighth + 8 * h, head = column0 / HEAD_DIM + i / QUADS;
                if (row < pc.p.m && head < N / HEAD_DIM) finish_head(row, head, i % QUADS, squares[h], a[h], b[h]);
            }
        }
    }
}
