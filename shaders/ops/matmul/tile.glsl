// The workgroup tile of dense and quantized products, for devices without matrix units and for what those do not take.
//
// A workgroup makes TILE_ROWS x TILE_COLUMNS outputs, each thread 4 * ROW_QUADS x 4 * COLUMN_QUADS of them in
// registers. It walks along k in slices of DEPTH. All threads load the next slices of both operands as "eights" (eight
// neighbours in memory) while they multiply the present ones. These are in shared memory as [depth][line], so every
// value is loaded, converted and dequantized once a tile. SIDE threads lie along a row of the tile and THREADS / SIDE
// along a column, 8 x 4 of them beside each other. SIDE is a multiple of 8, THREADS / SIDE of 4. Values are the 32 bits
// of a register, TILE_FLOAT tells which arithmetic they mean. DEPTH is a multiple of 8 and of UNROLL, the steps that
// are compiled in a row. Many keep a GPU's arithmetic busy; few compile fast where a CPU does the work.
//
// A shader defines tile_fetch (eights of the slices at a depth into registers) and tile_fill (registers to shared memory).
// With SPLITS > 1 that many workgroups share the depth of a tile and leave as many results, which sum_splits adds up.

#include "include/vec8.glsl"

const uint ROW_SIDE = THREADS / SIDE;
const uint TILE_ROWS = 4u * ROW_QUADS * ROW_SIDE;
const uint TILE_COLUMNS = 4u * COLUMN_QUADS * SIDE;
const uint A_VEC8S = (TILE_ROWS * DEPTH / 8u + THREADS - 1u) / THREADS; // a thread's, of a slice
const uint B_VEC8S = (TILE_COLUMNS * DEPTH / 8u + THREADS - 1u) / THREADS;
const uint SLICE_B = DEPTH * TILE_ROWS / 4u;

shared uvec4 slices[DEPTH * (TILE_ROWS + TILE_COLUMNS) / 4u]; // a: [depth][row / 4], then b: [depth][column / 4]
uvec4 tile_sums[4u * ROW_QUADS * COLUMN_QUADS];               // [row][column / 4]

void tile_fetch(uint depth0);
void tile_fill();

// ---- where a workgroup and its threads are --------------------------------------------------------------------------

struct Tile {
    uint batch, split, row0, column0;
};

// Workgroups walk down the columns of tiles: those that run together share the larger operand.
uint tile_count(uint batch, uint m, uint n) {
    return SPLITS * batch * ((m + TILE_ROWS - 1u) / TILE_ROWS) * ((n + TILE_COLUMNS - 1u) / TILE_COLUMNS);
}

Tile tile_of(uint group, uint batch, uint m, uint n) {
    uint down = (m + TILE_ROWS - 1u) / TILE_ROWS, across = (n + TILE_COLUMNS - 1u) / TILE_COLUMNS, rest = group / down;
    Tile t;
    t.row0 = group % down * TILE_ROWS;
    t.column0 = rest % across * TILE_COLUMNS;
    t.batch = rest / across % batch;
    t.split = rest / across / batch;
    return t;
}

// Quad of rows and of columns, the first of each.
uint thread_row() { return gl_LocalInvocationID.x / 8u % 4u + 4u * (gl_LocalInvocationID.x / (4u * SIDE)); }
uint thread_column() { return gl_LocalInvocationID.x % 8u + 8u * (gl_LocalInvocationID.x / 32u % (SIDE / 8u)); }

// ---- slices ---------------------------------------------------------------------------------------------------------

// Line and depth of eight i of a slice, within the slice; outside of the slice if it has fewer.
uvec2 eight_place(uint i, uint lines, bool along_depth) {
    return along_depth ? uvec2(i % lines, i / lines * 8u) : uvec2(i % (lines / 8u) * 8u, i / (lines / 8u));
}

// Puts an unpacked eight into the slice of `lines` that begins at `slice`.
void put_vec8(uint slice, uint lines, uvec2 place, bool along_depth, Vec8 e) {
    if (place.y >= DEPTH) return;
    uint quads = lines / 4u, at = slice + place.y * quads + place.x / 4u;
    if (along_depth) {
        [[unroll]] for (uint j = 0; j < 4u; j++) {
            slices[at + j * quads][place.x % 4u] = e.first[j];
            slices[at + (j + 4u) * quads][place.x % 4u] = e.second[j];
        }
    } else {
        slices[at] = e.first;
        slices[at + 1u] = e.second;
    }
}

// ---- the product ----------------------------------------------------------------------------------------------------

void tile_multiply() {
    uint row = thread_row(), column = thread_column();
    for (uint first = 0; first < DEPTH; first += UNROLL) {
        [[unroll]] for (uint step = 0; step < UNROLL; step++) {
            uvec4 a[ROW_QUADS], b[COLUMN_QUADS];
            [[unroll]] for (uint i = 0; i < ROW_QUADS; i++) { a[i] = slices[(first + step) * (TILE_ROWS / 4u) + i * ROW_SIDE + row]; }
            [[unroll]] for (uint j = 0; j < COLUMN_QUADS; j++) {
                b[j] = slices[SLICE_B + (first + step) * (TILE_COLUMNS / 4u) + j * SIDE + column];
            }
            [[unroll]] for (uint i = 0; i < 4u * ROW_QUADS; i++) {
                [[unroll]] for (uint j = 0; j < COLUMN_QUADS; j++) {
                    uint at = i * COLUMN_QUADS + j, x = a[i / 4u][i % 4u];
                    if (TILE_FLOAT) {
                        vec4 sum = uintBitsToFloat(tile_sums[at]);
                        tile_sums[at] = floatBitsToUint(fma(vec4(uintBitsToFloat(x)), uintBitsToFloat(b[j]), sum));
                    } else {
                        tile_sums[at] += x * b[j];
                    }
                }
            }
        }
    }
}

// Adds up a tile over the depths of its split.
void tile_product(uint split, uint k) {
    [[unroll]] for (uint i = 0; i < 4u * ROW_QUADS * COLUMN_QUADS; i++)
        tile_sums[i] = uvec4(0);
    uint part = (k + SPLITS * DEPTH - 1u) / (SPLITS * DEPTH) * DEPTH, end = min(k, (split + 1u) * part);
    tile_fetch(split * part);
    for (uint depth0 = split * part; depth0 < end; depth0 += DEPTH) {
        barrier(); // the slices before have been used
        tile_fill();
        barrier();
        tile_fetch(depth0 + DEPTH);
        tile_multiply();
    }
}

// Stores the tile at (row0, column0) of a (rows, columns) matrix whose rows lie `stride` elements apart.
void tile_store(uint64_t address, uint dtype, Tile t, uint rows, uint columns, uint stride) {
    [[unroll]] for (uint i = 0; i < 4u * ROW_QUADS; i++) {
        uint row = t.row0 + 4u * (i / 4u * ROW_SIDE + thread_row()) + i % 4u;
        [[unroll]] for (uint j = 0; j < 4u * COLUMN_QUADS; j++) {
            uint column = t.column0 + 4u * (j / 4u * SIDE + thread_column()) + j % 4u;
            if (row >= rows || column >= columns) continue;
            store_bits(address, row * stride + column, dtype, tile_sums[i * COLUMN_QUADS + j / 4u][j % 4u]);
        }
    }
}
