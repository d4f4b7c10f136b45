#version 460
// quantized_matmul: out[batch][m][n] = x[batch] (m, k) times w: w (n, k) packed along k (TRANSPOSE 1) or (k, n) packed
// along n.
//
// A workgroup makes one tile (tile.glsl): codes are dequantized on their way to shared memory and used by all rows of the
// tile. Workgroups: SPLITS * batch * ceil(m / TILE_ROWS) * ceil(n / TILE_COLUMNS), folded over (x, y); with SPLITS > 1 out
// is (SPLITS, batch, m, n).
//
// gathered_quantized_matmul (GATHERED): the matrices of x and w of a batch row are those that `left` and `right` name.

#extension GL_GOOGLE_include_directive : require
#ifdef GATHERED
#define BUFFERS 7
#else
#define BUFFERS 5
#endif
#define PUSH QuantizedMatmulPush
#include "include/common.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 6) const uint TRANSPOSE = 1;
layout(constant_id = 7) const uint SIDE = 8;
layout(constant_id = 8) const uint ROW_QUADS = 1;
layout(constant_id = 9) const uint COLUMN_QUADS = 1;
layout(constant_id = 10) const uint DEPTH = 16;
layout(constant_id = 11) const uint UNROLL = 4;
layout(constant_id = 12) const uint SPLITS = 1;
layout(constant_id = 13) const uint MODE = MODE_AFFINE;

#define TILE_FLOAT true
#include "ops/matmul/tile.glsl"
#include "quantized.glsl"
#include "codes.glsl"
#include "ops/indexing/chosen.glsl"

Tile tile;
Operand x;
Matrix w;
Vec8 x_vec8s[A_VEC8S];
Codes w_codes[B_VEC8S];

// Of the packed dimension, eight neighbours are inside or outside together.
Codes fetch_codes(uint column, uint depth) {
    if (column >= pc.p.n || depth >= pc.p.k) return NO_CODES;
    return TRANSPOSE == 1 ? codes_at(w, column, pc.p.k, depth) : codes_at(w, depth, pc.p.n, column);
}

void tile_fetch(uint depth0) {
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true);
        x_vec8s[i] = fetch_vec8(x, DTYPE_X, tile.row0 + place.x, depth0 + place.y);
    }
    [[unroll]] for (uint i = 0; i < B_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, TRANSPOSE == 1);
        w_codes[i] = fetch_codes(tile.column0 + place.x, depth0 + place.y);
    }
}

void tile_fill() {
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true);
        put_vec8(0, TILE_ROWS, place, true, unpacked(x_vec8s[i], DTYPE_X));
    }
    [[unroll]] for (uint i = 0; i < B_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, TRANSPOSE == 1);
        put_vec8(SLICE_B, TILE_COLUMNS, place, TRANSPOSE == 1, dequantized(w_codes[i]));
    }
}

void main() {
    uint group = flat_workgroup();
    if (group >= tile_count(pc.p.batch, pc.p.m, pc.p.n)) return;
    tile = tile_of(group, pc.p.batch, pc.p.m, pc.p.n);
    uint64_t x_address = pc.address[0] + uint64_t(left_of(tile.batch)) * (pc.p.m * pc.p.k * DTYPE_BYTES(DTYPE_X));
    x = operand_of(x_address, DTYPE_X, int(pc.p.k), 1, pc.p.m, pc.p.k, true);
    w = matrix_of(pc.address[1], pc.address[2], pc.address[3], uint64_t(right_of(tile.batch)) * pc.p.n * pc.p.k);
    tile_product(tile.split, pc.p.k);
    uint64_t part = uint64_t(tile.split * pc.p.batch + tile.batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    tile_store(pc.address[4] + part, DTYPE_OUT, tile, pc.p.m, pc.p.n, pc.p.n);
}
