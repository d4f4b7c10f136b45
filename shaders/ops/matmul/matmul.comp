#version 460
// matmul: out[batch][m][n] = sum over k of a[batch][m][k] * b[batch][k][n]; a and b strided, out contiguous.
//
// A workgroup makes one tile (tile.glsl). Workgroups: SPLITS * batch * ceil(m / TILE_ROWS) * ceil(n / TILE_COLUMNS), folded
// over (x, y); with SPLITS > 1 out is (SPLITS, batch, m, n). Floats accumulate in float32, integers modulo 2^32. a and b
// are both float types or both integers.
//
// gathered_matmul (GATHERED): `left` and `right` (uint32, a word a batch row) name the matrices of a and b; default the
// first. With `ranges` (pairs of uint32) a batch row is the product over the depths from the first to the second of its
// pair.

#extension GL_GOOGLE_include_directive : require
#ifdef GATHERED
#define BUFFERS 6
#else
#define BUFFERS 3
#endif
#define PUSH MatmulPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_A = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_B = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint SIDE = 8;
layout(constant_id = 5) const uint ROW_QUADS = 1;
layout(constant_id = 6) const uint COLUMN_QUADS = 1;
layout(constant_id = 7) const uint DEPTH = 16;
layout(constant_id = 8) const uint UNROLL = 4;
layout(constant_id = 9) const uint SPLITS = 1;

#define TILE_FLOAT DTYPE_IS_FLOAT(DTYPE_OUT)
#include "tile.glsl"
#include "matmul.glsl"

#ifdef GATHERED
#include "gathered.glsl"
#endif

Tile tile;
Operand a, b;
Vec8 a_vec8s[A_VEC8S], b_vec8s[B_VEC8S];

void tile_fetch(uint depth0) {
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, a.along_depth);
        a_vec8s[i] = fetch_vec8(a, DTYPE_A, tile.row0 + place.x, depth0 + place.y);
    }
    [[unroll]] for (uint i = 0; i < B_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, b.along_depth);
        b_vec8s[i] = fetch_vec8(b, DTYPE_B, tile.column0 + place.x, depth0 + place.y);
    }
}

void tile_fill() {
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, a.along_depth);
        put_vec8(0, TILE_ROWS, place, a.along_depth, unpacked(a_vec8s[i], DTYPE_A));
    }
    [[unroll]] for (uint i = 0; i < B_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, b.along_depth);
        put_vec8(SLICE_B, TILE_COLUMNS, place, b.along_depth, unpacked(b_vec8s[i], DTYPE_B));
    }
}

void main() {
    uint group = flat_workgroup();
    if (group >= tile_count(pc.p.batch, pc.p.m, pc.p.n)) return;
    tile = tile_of(group, pc.p.batch, pc.p.m, pc.p.n);
#ifdef GATHERED
    uvec2 range = gathered_depths(tile.batch);
    uint depths = range.y - range.x;
    find_gathered(tile.batch, range.x);
#else
    uint depths = pc.p.k;
    find_operands(tile.batch);
#endif
    a = operand_of(operand_a, DTYPE_A, pc.p.a_strides[0], pc.p.a_strides[1], pc.p.m, depths,
                   abs(pc.p.a_strides[1]) <= abs(pc.p.a_strides[0]));
    b = operand_of(operand_b, DTYPE_B, pc.p.b_strides[1], pc.p.b_strides[0], pc.p.n, depths,
                   abs(pc.p.b_strides[0]) <= abs(pc.p.b_strides[1]));
    tile_product(tile.split, depths);
    uint64_t part = uint64_t(tile.split * pc.p.batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    tile_store(operand_out + part, DTYPE_OUT, tile, pc.p.m, pc.p.n, pc.p.n);
}
