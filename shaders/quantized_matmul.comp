#version 460
// quantized_matmul: out[batch][m][n] = x[batch] (m, k) times w: w (n, k) packed along k (TRANSPOSE 1) or (k, n) packed
// along n.
//
// A workgroup makes one tile (tile.glsl): codes are dequantized on their way to shared memory and used by all rows of the
// tile. Workgroups: SPLITS * batch * ceil(m / TILE_ROWS) * ceil(n / TILE_COLUMNS), folded over (x, y); with SPLITS > 1 out
// is (SPLITS, batch, m, n).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 5
#define PUSH QuantizedMatmulPush
#include "common.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 6) const uint TRANSPOSE = 1;
layout(constant_id = 7) const uint SIDE = 8;
layout(constant_id = 8) const uint ROW_QUADS = 1;
layout(constant_id = 9) const uint COLUMN_QUADS = 1;
layout(constant_id = 10) const uint SPLITS = 1;

#define TILE_FLOAT true
#include "tile.glsl"
#include "quantized.glsl"

// Eight codes, not yet shifted to the lowest bit, with their scale and bias as they lie in memory.
struct Codes { uvec2 words; uint shift, scale, bias; };

Tile tile;
Operand x;
uint64_t w_address, scales_address, biases_address;
Eight x_eights[A_EIGHTS];
Codes w_codes[B_EIGHTS];

// Of the packed dimension, eight neighbours are inside or outside together, and in one group.
Codes fetch_codes(uint column, uint depth) {
    if (column >= pc.p.n || depth >= pc.p.k) return Codes(uvec2(0), 0, 0, 0);
    uint row = TRANSPOSE == 1 ? column : depth, columns = TRANSPOSE == 1 ? pc.p.k : pc.p.n;
    uint first = TRANSPOSE == 1 ? depth : column, group = row * (columns / GROUP) + first / GROUP;
    uint64_t chunk = uint64_t(row) * (columns / 32u) + first / 32u;
    uint part = first / 8u % 4u;
    return Codes(words8(w_address + chunk * (4u * BITS), part), shift8(part), load_raw(scales_address, group, DTYPE_SCALES),
                 load_raw(biases_address, group, DTYPE_SCALES));
}

Eight dequantized(Codes c) {
    uvec2 codes = shifted8(c.words, c.shift);
    float s = raw_float(c.scale, DTYPE_SCALES), scale = code_scale(s), bias = code_bias(s, raw_float(c.bias, DTYPE_SCALES));
    Eight e;
    [[unroll]] for (uint j = 0; j < 4u; j++) {
        e.first[j] = floatBitsToUint(fma(scale, code_value(code_at(codes, j)), bias));
        e.second[j] = floatBitsToUint(fma(scale, code_value(code_at(codes, j + 4u)), bias));
    }
    return e;
}

void tile_fetch(uint depth0) {
    [[unroll]] for (uint i = 0; i < A_EIGHTS; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true);
        x_eights[i] = fetch_eight(x, DTYPE_X, tile.row0 + place.x, depth0 + place.y);
    }
    [[unroll]] for (uint i = 0; i < B_EIGHTS; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, TRANSPOSE == 1);
        w_codes[i] = fetch_codes(tile.column0 + place.x, depth0 + place.y);
    }
}

void tile_fill() {
    [[unroll]] for (uint i = 0; i < A_EIGHTS; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true);
        put_eight(0, TILE_ROWS, place, true, unpacked(x_eights[i], DTYPE_X));
    }
    [[unroll]] for (uint i = 0; i < B_EIGHTS; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, TRANSPOSE == 1);
        put_eight(SLICE_B, TILE_COLUMNS, place, TRANSPOSE == 1, dequantized(w_codes[i]));
    }
}

void main() {
    uint group = flat_workgroup();
    if (group >= tile_count(pc.p.batch, pc.p.m, pc.p.n)) return;
    tile = tile_of(group, pc.p.batch, pc.p.m, pc.p.n);
    uint64_t elements = uint64_t(pc.p.w_batch == 1 ? 0 : tile.batch) * (uint64_t(pc.p.n) * pc.p.k);
    uint64_t scales = elements / GROUP * DTYPE_BYTES(DTYPE_SCALES);
    uint64_t x_address = pc.address[0] + uint64_t(tile.batch) * (pc.p.m * pc.p.k * DTYPE_BYTES(DTYPE_X));
    x = operand_of(x_address, DTYPE_X, int(pc.p.k), 1, pc.p.m, pc.p.k);
    w_address = pc.address[1] + elements / 8 * BITS;
    scales_address = pc.address[2] + scales;
    biases_address = pc.address[3] + scales;
    tile_product(tile.split, pc.p.k);
    uint64_t part = uint64_t(tile.split * pc.p.batch + tile.batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    tile_store(pc.address[4] + part, DTYPE_OUT, tile, pc.p.m, pc.p.n);
}
