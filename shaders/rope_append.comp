#version 460
// rope_append: from the rows of a joint product, [HEADS of q | KV_HEADS of k | KV_HEADS of v] of HEAD_DIM each, to what attention reads:
// heads of q and k are normalised, y = x / sqrt(mean of x^2 + eps) * weight, and turned half by half by the angles of rope_table, in
// place; k and v are also written into the cache.
//
// rows = batch * seq, in float16. Caches (batch, KV_HEADS, HEAD_DIM / BLOCK, capacity, BLOCK), from row start[0] on, clamped so that all fit;
// keys and values may be absent. KEEP_KEYS 0: nobody reads the turned rows of k but the cache.
// Of a head, a thread has quad i of both halves. Threads run over 4 rows first, so that neighbours write neighbouring cache rows, then over
// quads, then heads. THREADS must be a multiple of HEAD_DIM / 2. Workgroups: ceil(rows / 4) * ceil(all heads * HEAD_DIM / 2 / THREADS), folded.

#define BUFFERS 7
#define PUSH RopeAppendPush
#include "common.glsl"
#include "quads.glsl"

layout(constant_id = 1) const uint HEADS = 1; // 0 where only k and v are wanted
layout(constant_id = 2) const uint KV_HEADS = 1;
layout(constant_id = 3) const uint HEAD_DIM = 128;
layout(constant_id = 4) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 6) const uint BLOCK_KEYS = 128;
layout(constant_id = 7) const uint BLOCK_VALUES = 128;
layout(constant_id = 8) const uint KEEP_KEYS = 1;

const uint ROWS = 4;
const uint QUADS = HEAD_DIM / 8;                     // of half a head
const uint HEADS_EACH = THREADS / (ROWS * QUADS);    // heads of a workgroup
const uint ALL_HEADS = HEADS + 2 * KV_HEADS;
const uint QKV = 0, TABLE = 1, Q_NORM = 2, K_NORM = 3, START = 4, KEYS = 5, VALUES = 6;

shared float squares[THREADS];

void append(uint64_t cache, uint block, uint row, uint head, uint quad, vec4 x) {
    if (cache == 0ul) return;
    uint start = uint(clamp(I32s(pc.address[START]).v[0], 0, int(pc.p.capacity - pc.p.seq))), feature = quad * 4;
    uint heads_before = row / pc.p.seq * KV_HEADS + head, position = start + row % pc.p.seq;
    uint at = ((heads_before * (HEAD_DIM / block) + feature / block) * pc.p.capacity + position) * block + feature % block;
    store_quad(cache, at / 4, DTYPE_KV, x);
}

void main() {
    uint tiles = (ALL_HEADS + HEADS_EACH - 1) / HEADS_EACH, group = flat_workgroup(), thread = gl_LocalInvocationID.x;
    uint row = group / tiles * ROWS + thread % ROWS, i = thread / ROWS % QUADS, head = group % tiles * HEADS_EACH + thread / ROWS / QUADS;
    bool inside = row < pc.p.rows && head < ALL_HEADS;
    uint64_t at = pc.address[QKV] + (uint64_t(min(row, pc.p.rows - 1)) * ALL_HEADS + min(head, ALL_HEADS - 1)) * (HEAD_DIM * 2);
    vec4 a = load_quad(at, i, DTYPE_F16), b = load_quad(at, QUADS + i, DTYPE_F16);
    squares[thread] = dot(a, a) + dot(b, b);
    barrier();
    if (!inside) return;
    if (head >= HEADS + KV_HEADS) {
        append(pc.address[VALUES], BLOCK_VALUES, row, head - HEADS - KV_HEADS, i, a);
        append(pc.address[VALUES], BLOCK_VALUES, row, head - HEADS - KV_HEADS, QUADS + i, b);
        return;
    }
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < QUADS; j++) sum += squares[(thread / ROWS / QUADS * QUADS + j) * ROWS + thread % ROWS];
    float factor = inversesqrt(sum / float(HEAD_DIM) + pc.p.eps);
    bool query = head < HEADS;
    uint64_t weight = pc.address[query ? Q_NORM : K_NORM];
    a *= factor * load_quad(weight, i, DTYPE_WEIGHT);
    b *= factor * load_quad(weight, QUADS + i, DTYPE_WEIGHT);
    uint turns = (row % pc.p.seq * QUADS + i) * 2;
    vec4 t = F32x4s(pc.address[TABLE]).v[turns], u = F32x4s(pc.address[TABLE]).v[turns + 1];
    vec4 c = vec4(t.xz, u.xz), s = vec4(t.yw, u.yw), first = a * c - b * s, second = a * s + b * c;
    if (query || KEEP_KEYS != 0) {
        store_quad(at, i, DTYPE_F16, clamp(first, vec4(-65504.0), vec4(65504.0)));
        store_quad(at, QUADS + i, DTYPE_F16, clamp(second, vec4(-65504.0), vec4(65504.0)));
    }
    if (!query) {
        append(pc.address[KEYS], BLOCK_KEYS, row, head - HEADS, i, first);
        append(pc.address[KEYS], BLOCK_KEYS, row, head - HEADS, QUADS + i, second);
    }
}
