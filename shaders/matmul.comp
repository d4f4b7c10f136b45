#version 460
// matmul: out[batch][m][n] = sum over k of a[batch][m][k] * b[batch][k][n]; a and b strided, out contiguous.
//
// A workgroup makes one TILE x TILE tile. THREADS is 64 (TILE 32) or 256 (TILE 64).
// Workgroups: batch * ceil(m / TILE) * ceil(n / TILE), folded over (x, y).
// Floats accumulate in float32, integers modulo 2^32. a and b are both float types or both integers.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH MatmulPush
#include "common.glsl"

layout(constant_id = 1) const uint DTYPE_A = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_B = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;

#define TILE_FLOAT DTYPE_IS_FLOAT(DTYPE_OUT)
#include "tile.glsl"
#include "matmul.glsl"

// Neighbouring threads read neighbouring elements of memory, whichever dimension that is.
void load_slice(uint row0, uint column0, uint depth0) {
    bool a_along_k = abs(pc.p.a_strides[1]) <= abs(pc.p.a_strides[0]);
    bool b_along_n = abs(pc.p.b_strides[1]) <= abs(pc.p.b_strides[0]);
    for (uint first = gl_LocalInvocationID.x; first < TILE * DEPTH; first += 4 * THREADS) {
        [[unroll]] for (uint step = 0; step < 4; step++) {
            uint i = first + step * THREADS;
            uint row = a_along_k ? i / DEPTH : i % TILE, depth = a_along_k ? i % DEPTH : i / TILE;
            bool inside = row0 + row < pc.p.m && depth0 + depth < pc.p.k;
            tile_put_a(row, depth, inside ? a_bits(row0 + row, depth0 + depth) : 0u);
            uint column = b_along_n ? i % TILE : i / DEPTH;
            depth = b_along_n ? i / TILE : i % DEPTH;
            inside = column0 + column < pc.p.n && depth0 + depth < pc.p.k;
            tile_put_b(depth, column, inside ? b_bits(depth0 + depth, column0 + column) : 0u);
        }
    }
}

void main() {
    uint across = (pc.p.n + TILE - 1) / TILE, down = (pc.p.m + TILE - 1) / TILE;
    uint group = flat_workgroup();
    if (group >= pc.p.batch * across * down) return;
    find_operands(group / (across * down));
    uint row0 = group / across % down * TILE, column0 = group % across * TILE;
    tile_clear();
    for (uint depth0 = 0; depth0 < pc.p.k; depth0 += DEPTH) {
        load_slice(row0, column0, depth0);
        tile_multiply();
    }
    tile_store(operand_out, DTYPE_OUT, row0, column0, pc.p.m, pc.p.n);
}
