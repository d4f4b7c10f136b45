// The workgroup tile of dense and quantized products: TILE x TILE outputs, 4 x 4 a thread, operands through shared
// memory.
//
// Needs THREADS = 64 (TILE 32) or 256 (TILE 64). A shader fills the two slices with tile_put_a/b, DEPTH columns of a
// and rows of b at a time, and calls tile_multiply; values are the 32 bits of a register, TILE_FLOAT tells which
// arithmetic they mean. Loops unroll four steps and no more: enough to overlap loads, and a driver compiles them in a
// fraction of the time.

const uint SIDE = THREADS == 256u ? 16u : 8u; // threads along a side
const uint TILE = 4u * SIDE;
const uint DEPTH = 32u;

shared uvec4 tile_a[DEPTH * SIDE]; // [depth][row / 4]
shared uvec4 tile_b[DEPTH * SIDE]; // [depth][column / 4]
uvec4 tile_sums[4];                // [row][column]

void tile_put_a(uint row, uint depth, uint bits) { tile_a[depth * SIDE + row / 4u][row % 4u] = bits; }
void tile_put_b(uint depth, uint column, uint bits) { tile_b[depth * SIDE + column / 4u][column % 4u] = bits; }

void tile_clear() {
    for (uint i = 0; i < 4; i++) tile_sums[i] = uvec4(0);
}

// Adds the product of the slices. The barriers make them whole before and free after.
void tile_multiply() {
    uint column = gl_LocalInvocationID.x % SIDE, row = gl_LocalInvocationID.x / SIDE;
    barrier();
    for (uint first = 0; first < DEPTH; first += 4) {
        [[unroll]] for (uint step = 0; step < 4; step++) {
            uvec4 a = tile_a[(first + step) * SIDE + row], b = tile_b[(first + step) * SIDE + column];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                if (TILE_FLOAT) {
                    vec4 sum = uintBitsToFloat(tile_sums[i]);
                    tile_sums[i] = floatBitsToUint(fma(vec4(uintBitsToFloat(a[i])), uintBitsToFloat(b), sum));
                } else {
                    tile_sums[i] += a[i] * b;
                }
            }
        }
    }
    barrier();
}

// Stores the tile at (row0, column0) of a contiguous (rows, columns) matrix.
void tile_store(uint64_t out_address, uint dtype, uint row0, uint column0, uint rows, uint columns) {
    uint column = column0 + gl_LocalInvocationID.x % SIDE * 4u, row = row0 + gl_LocalInvocationID.x / SIDE * 4u;
    for (uint i = 0; i < 4 && row + i < rows; i++) {
        for (uint j = 0; j < 4; j++) {
            if (column + j < columns) store_bits(out_address, (row + i) * columns + column + j, dtype, tile_sums[i][j]);
        }
    }
}
