#version 460
// coopmat_experts_direct: out[row] = x[row] . w[expert of row] + bias in 16x16x16 matrices, of rows that are sorted by expert.
// coopmat_experts_gated: out[row] = unit(x[row] . gate + bias, x[row] . up + bias); columns of both alternate in blocks of 16.
// x is float16, w (experts, n, k) has codes of 4 or 8 bits, sums are float32. Results in float16 stay within its range. Units are stored as
// a sixteenth of themselves, since products of gate and up go beyond it.
//
// A workgroup makes a tile of at most ROWS rows of one expert times COLUMNS columns, each of four subgroups a quarter of them. x goes
// through shared memory, DEPTH of the depth at a time, the next step's loads in flight during the multiplications. A lane loads the codes
// that it multiplies, 32 or 16 neighbours of a column, and dequantizes them in registers. So the matrices are read where they are, and take
// no shared memory. Rows of a tile do not count for each other.
//
// n is a multiple of 16, k of 32. THREADS must be 128. Workgroups: (tiles, ceil(n * matrices / COLUMNS)).

#extension GL_GOOGLE_include_directive : require
#ifndef EMULATED
#include "coopmat.glsl"
#endif
#define BUFFERS 13
#define PUSH SortedExpertsPush
#include "include/common.glsl"

#ifndef WORKERS
#define WORKERS 128
#endif
#define ROW_BLOCKS (ROWS / 16)
#define COLUMN_BLOCKS (COLUMNS * 2 / WORKERS) // of a subgroup
#define SIDES (2 * COLUMN_BLOCKS)             // columns of a lane
#define PARTS (128 / DEPTH)                   // of a run of 128
#define EIGHTS (DEPTH / 32)                   // of a lane's codes in a part
#define CODE_WORDS (EIGHTS * WEIGHT_BITS / 4)
#define LOADS (ROWS * EIGHTS * 4 / WORKERS) // uvec4 of x a thread
#define X_ROWS (LOADS > 4 ? LOADS / 4 : 1)  // of so many rows
#define ROW_LOADS (LOADS / X_ROWS)
#define STRIDE (DEPTH / 8 + 1) // uvec4 from row to row of x: one more, so that rows are in different banks
#define TILE (ROWS * STRIDE)
#define SUM_STRIDE (COLUMNS / 4 + 1) // and of sums
#define PATCH (16 * SUM_STRIDE)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SHARED LARGER(LARGER(TILE, PATCH), MIN_SHARED)
#include "sorted_experts.glsl"
MATRIX_SUM sums[ROW_BLOCKS * COLUMN_BLOCKS];

uvec4 x_next[LOADS];
uint codes[SIDES * CODE_WORDS], codes_next[SIDES * CODE_WORDS], scale_pairs[SIDES];
uvec2 scales_next[SIDES];
uint64_t x_rows[X_ROWS]; // of the thread's part of x

// What a thread loads of x: numbers that belong to neighbouring lanes, from lane c of four on, of one row or several.
uint own_eight() { return gl_LocalInvocationIndex % EIGHTS; }
uint own_c() { return gl_LocalInvocationIndex / EIGHTS * ROW_LOADS % 4; }
uint own_row(uint i) { return gl_LocalInvocationIndex / (EIGHTS * 4 / ROW_LOADS) + i * (ROWS / X_ROWS); }

void find_rows() {
    [[unroll]] for (uint i = 0; i < X_ROWS; i++) {
        uint row = own_row(i);
        x_rows[i] = pc.address[0] + uint64_t(x_row_of(left_of(min(row, rows - 1)))) * (K * 2);
    }
}

// Past the end x is 0. Rows that a tile lacks are its last one.
void load_x(uint run, uint part) {
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint depth = run * 128 + (own_c() + i % ROW_LOADS) * 32;
        bool inside = K % 128 == 0 || depth < K;
        x_next[i] = inside ? U32x4s(x_rows[i / ROW_LOADS] + (depth + part * (DEPTH / 4) + own_eight() * 8) * 2).v[0] : uvec4(0);
    }
}

void store_x() {
    [[unroll]] for (uint j = 0; j < X_ROWS; j++) {
        [[unroll]] for (uint q = 0; q < 4; q++) {
            uint to = own_row(j) * STRIDE + own_eight() * 4 + q;
            uvec4 pairs;
            [[unroll]] for (uint i = 0; i < ROW_LOADS; i++)
                pairs[i] = x_pair(x_next[j * ROW_LOADS + i], q);
            if (ROW_LOADS == 4) tile[to] = pairs;
            else [[unroll]]
                for (uint i = 0; i < ROW_LOADS; i++) tile[to][own_c() + i] = pairs[i];
        }
    }
}

// Scales serve all parts of a run of 128.
void load_w(uint run, uint part) {
    uint depth = depth_of(run);
    [[unroll]] for (uint side = 0; side < SIDES; side++) {
        uint64_t at = codes_of(side, depth) + part * (CODE_WORDS * 4);
#if CODE_WORDS % 4 == 0
        [[unroll]] for (uint q = 0; q < CODE_WORDS / 4; q++) {
            uvec4 four = U32x4s(at + q * 16).v[0];
            [[unroll]] for (uint i = 0; i < 4; i++)
                codes_next[side * CODE_WORDS + q * 4 + i] = four[i];
        }
#else
        uvec2 two = U32x2s(at).v[0];
        codes_next[side * CODE_WORDS] = two.x;
        codes_next[side * CODE_WORDS + 1] = two.y;
#endif
        if (part == 0) scales_next[side] = scale_of(side, depth);
    }
}

void use_w(uint part) {
    codes = codes_next;
    if (part > 0) return;
    [[unroll]] for (uint side = 0; side < SIDES; side++)
        scale_pairs[side] = pair_of_scales(scales_next[side]);
}

// Pair i < 2 of four numbers of a column that matrix `depth` of a step has.
PAIR weights_of(uint side, uint depth, uint i) {
    return pair_of_codes(codes[side * CODE_WORDS + depth * WEIGHT_BITS / 8], depth % 2, i, scale_pairs[side]);
}

void multiply() {
    [[unroll]] for (uint depth = 0; depth < DEPTH / 16; depth++) {
        MATRIX_A a[ROW_BLOCKS];
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
            LOAD_A(a[i], i * 16 * STRIDE + depth * 2, STRIDE);
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
            MATRIX_B b;
            [[unroll]] for (uint q = 0; q < 4; q++) {
                PAIR pair = weights_of(2 * j + q / 2, depth, q % 2);
                SET_PAIR(b, q, pair);
            }
            [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
                sums[i * COLUMN_BLOCKS + j] = MULTIPLY(a[i], b, sums[i * COLUMN_BLOCKS + j]);
        }
    }
}

// Sums go out through shared memory, 16 rows at a time.
void store_sums() {
    [[unroll]] for (uint block = 0; block < ROW_BLOCKS; block++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++)
            STORE_SUM(sums[block * COLUMN_BLOCKS + j], (warp() * COLUMN_BLOCKS + j) * 4, SUM_STRIDE);
        barrier();
        store_rows(block * 16, 16);
        barrier();
    }
}

void main() {
    if (!find_tile()) return;
    find_rows();
    find_columns();
    find_bases((pc.p.x_rows + gl_LocalInvocationIndex) >> 31);
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; i++)
        sums[i] = NO_SUM;
    load_x(0, 0);
    load_w(0, 0);
    [[dont_unroll]] for (uint run = 0; run < RUNS; run++) {
        [[unroll]] for (uint part = 0; part < PARTS; part++) {
            store_x();
            use_w(part);
            barrier();
            uint after = part + 1 < PARTS ? run : min(run + 1, RUNS - 1); // the last loads are not used
            load_x(after, (part + 1) % PARTS);
            load_w(after, (part + 1) % PARTS);
            multiply();
            barrier();
        }
    }
    store_sums();
}
