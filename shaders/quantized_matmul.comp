#version 460
// quantized_matmul: out[batch][m][n] = x[batch] (m, k) times w: w (n, k) packed along k (TRANSPOSE 1) or (k, n) packed
// along n.
//
// A workgroup makes one TILE x TILE tile: each slice of w is dequantized once into shared memory and used by all rows
// of the tile. THREADS is 64 (TILE 32) or 256 (TILE 64). Workgroups: batch * ceil(m / TILE) * ceil(n / TILE), folded
// over (x, y).

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

#define TILE_FLOAT true
#include "tile.glsl"
#include "quantized.glsl"

uint64_t x_address, w_address, scales_address, biases_address;

void load_x_slice(uint row0, uint depth0) {
    for (uint first = gl_LocalInvocationID.x; first < TILE * DEPTH; first += 4 * THREADS) {
        [[unroll]] for (uint step = 0; step < 4; step++) {
            uint i = first + step * THREADS, row = i / DEPTH, depth = i % DEPTH;
            float x = 0.0; // k is a multiple of 32 only when w is packed along it
            if (row0 + row < pc.p.m && depth0 + depth < pc.p.k) {
                x = load_float(x_address, (row0 + row) * pc.p.k + depth0 + depth, DTYPE_X);
            }
            tile_put_a(row, depth, floatBitsToUint(x));
        }
    }
}

// Eight codes a thread and step. Of the packed dimension, eight neighbours are inside or outside together.
void load_w_slice(uint column0, uint depth0) {
    for (uint i = gl_LocalInvocationID.x; i < TILE * DEPTH / 8; i += THREADS) {
        uint packed_eights = (TRANSPOSE == 1 ? DEPTH : TILE) / 8;
        uint along = i % packed_eights * 8, line = i / packed_eights;
        uint column = TRANSPOSE == 1 ? line : along, depth = TRANSPOSE == 1 ? along : line;
        uvec2 codes = uvec2(0);
        float scale = 0.0, bias = 0.0;
        if (column0 + column < pc.p.n && depth0 + depth < pc.p.k) {
            uint row = TRANSPOSE == 1 ? column0 + column : depth0 + depth, columns = TRANSPOSE == 1 ? pc.p.k : pc.p.n;
            uint first = TRANSPOSE == 1 ? depth0 + depth : column0 + column;
            uint64_t chunk = uint64_t(row) * (columns / 32) + first / 32;
            uint group = row * (columns / GROUP) + first / GROUP;
            codes = codes8(w_address + chunk * (4 * BITS), first / 8 % 4);
            float s = load_float(scales_address, group, DTYPE_SCALES);
            scale = code_scale(s);
            bias = code_bias(s, load_float(biases_address, group, DTYPE_SCALES));
        }
        [[unroll]] for (uint j = 0; j < 8; j++) {
            uint w = floatBitsToUint(fma(scale, code_value(code_at(codes, j)), bias));
            if (TRANSPOSE == 1) tile_put_b(depth + j, column, w);
            else tile_put_b(depth, column + j, w);
        }
    }
}

void main() {
    uint across = (pc.p.n + TILE - 1) / TILE, down = (pc.p.m + TILE - 1) / TILE;
    uint group = flat_workgroup();
    if (group >= pc.p.batch * across * down) return;
    uint batch = group / (across * down);
    uint64_t index = uint64_t(pc.p.w_batch == 1 ? 0 : batch), elements = index * (uint64_t(pc.p.n) * pc.p.k);
    uint64_t scales = elements / GROUP * DTYPE_BYTES(DTYPE_SCALES);
    x_address = pc.address[0] + uint64_t(batch) * (pc.p.m * pc.p.k * DTYPE_BYTES(DTYPE_X));
    w_address = pc.address[1] + elements / 8 * BITS;
    scales_address = pc.address[2] + scales;
    biases_address = pc.address[3] + scales;
    uint64_t result = pc.address[4] + uint64_t(batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    uint row0 = group / across % down * TILE, column0 = group % across * TILE;
    tile_clear();
    for (uint depth0 = 0; depth0 < pc.p.k; depth0 += DEPTH) {
        load_x_slice(row0, depth0);
        load_w_slice(column0, depth0);
        tile_multiply();
    }
    tile_store(result, DTYPE_OUT, row0, column0, pc.p.m, pc.p.n);
}
