#version 460
// coopmat_experts: out[i] = x[left[i]] . w[expert of i] of rows that are sorted by expert, in 16x16x16 matrices. x is float16, w
// (experts, n, k) has any mode of codes, sums are float32. Results in float16 stay within its range.
//
// A workgroup makes a tile of at most ROWS rows of one expert (expert_tiles) times 128 columns, each of four subgroups 32 of them. Both
// factors go through shared memory, 64 of the depth at a time: w is dequantized on its way there, a column by a thread. The next step's
// loads are in flight during the multiplications. The matrices are read where they are: a copy in another order would take as much
// memory as all experts. k is a multiple of 32.
//   SCALED  x comes from half_rows, with a power of two for each 16 rows
// THREADS must be 128. Workgroups: (tiles, ceil(n / 128)).

#extension GL_GOOGLE_include_directive : require
#ifndef EMULATED
#include "coopmat.glsl"
#endif
#define BUFFERS 8
#define PUSH ExpertRowsPush
#include "include/common.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 4) const uint MODE = MODE_AFFINE;
layout(constant_id = 5) const uint SCALED = 0;
layout(constant_id = 6) const uint DTYPE_OUT = DTYPE_F16;

#include "include/vec4.glsl"
#include "include/vec8.glsl"
#include "ops/quantized/quantized.glsl"
#include "ops/quantized/codes.glsl"

#define COLUMNS 128
#define DEPTH 64
#define WORKERS 128
#define ROW_BLOCKS (ROWS / 16)
#define COLUMN_BLOCKS 2 // of a subgroup
#define EIGHTS (DEPTH / 8)
#define X_LOADS (ROWS * EIGHTS / WORKERS)
#define RUN_WORDS (DEPTH / 32 * BITS) // of a column in a step
#define SCALES (GROUP < DEPTH ? DEPTH / GROUP : 1)
#define STRIDE (EIGHTS + 1)          // uvec4 from row to row of both factors: one more, so that rows are in different banks
#define SUM_STRIDE (COLUMNS / 4 + 1) // and of sums

shared uvec4 tile[(ROWS + COLUMNS) * STRIDE];
#include "tiles.glsl"
MATRIX_SUM sums[ROW_BLOCKS * COLUMN_BLOCKS];

uvec4 x_next[X_LOADS];
uint x_row[X_LOADS];
uint words_next[RUN_WORDS], scales_next[SCALES], biases_next[SCALES];
uint first_row, rows, column0, column; // the last one is a thread's own, of w
uint64_t matrix;                       // the first element of the expert

uint left_of(uint row) { return min(U32s(pc.address[6]).v[first_row + min(row, rows - 1)], pc.p.x_rows - 1); }

void find_x() {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_row[i] = left_of((gl_LocalInvocationIndex + i * WORKERS) / EIGHTS);
}

void load_x(uint depth) {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint at = depth + (gl_LocalInvocationIndex + i * WORKERS) % EIGHTS * 8;
        x_next[i] = at < pc.p.k ? U32x4s(pc.address[0] + (uint64_t(x_row[i]) * pc.p.k + at) * 2).v[0] : uvec4(0);
    }
}

void store_x() {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS;
        tile[f / EIGHTS * STRIDE + f % EIGHTS] = x_next[i];
    }
}

// The codes of a column and of 64 of the depth; those after its end are others, for which x is 0.
void load_w(uint depth) {
    uint64_t first = matrix + uint64_t(column) * pc.p.k;
    [[unroll]] for (uint run = 0; run < DEPTH / 32; run++) {
        uint64_t at = pc.address[2] + (first + min(depth + run * 32, pc.p.k - 32)) / 8 * BITS;
        if (BITS % 4 == 0) {
            [[unroll]] for (uint q = 0; q < BITS / 4; q++) {
                uvec4 four = U32x4s(at).v[q];
                [[unroll]] for (uint i = 0; i < 4; i++)
                    words_next[run * BITS + q * 4 + i] = four[i];
            }
        } else {
            [[unroll]] for (uint i = 0; i < BITS; i++)
                words_next[run * BITS + i] = U32s(at).v[i];
        }
    }
    [[unroll]] for (uint i = 0; i < SCALES; i++) {
        uint64_t group = (first + min(depth + i * GROUP, pc.p.k - 1)) / GROUP;
        if (MODE_HAS_SMALL_FLOATS(MODE)) {
            scales_next[i] = uint(U8s(pc.address[3] + group).v[0]);
        } else {
            scales_next[i] = load_raw(pc.address[3] + group * DTYPE_BYTES(DTYPE_SCALES), 0, DTYPE_SCALES);
            biases_next[i] = MODE == MODE_AFFINE ? load_raw(pc.address[4] + group * DTYPE_BYTES(DTYPE_SCALES), 0, DTYPE_SCALES) : 0;
        }
    }
}

#ifdef EMULATED
uint half_pair(vec2 x) { return word_of(x); }
#else
uint half_pair(vec2 x) { return packHalf2x16(x); }
#endif

void store_w() {
    [[unroll]] for (uint eight = 0; eight < EIGHTS; eight++) {
        uint part = eight % 4, bit = part * 8 * BITS, word = eight / 4 * BITS + bit / 32, scale = eight * 8 / GROUP;
        bool one = bit % 32 + 8 * BITS <= 32;
        uvec2 words = uvec2(words_next[word], one ? 0 : words_next[one ? word : word + 1]);
        Vec8 w = dequantized(
            Codes(words, MODE_HAS_SMALL_FLOATS(MODE) ? 0 : shift8(part), scales_next[scale], MODE == MODE_AFFINE ? biases_next[scale] : 0));
        vec4 low = uintBitsToFloat(w.first), high = uintBitsToFloat(w.second);
        tile[(ROWS + gl_LocalInvocationIndex) * STRIDE + eight] =
            uvec4(half_pair(low.xy), half_pair(low.zw), half_pair(high.xy), half_pair(high.zw));
    }
}

void multiply() {
    [[unroll]] for (uint d = 0; d < DEPTH / 16; d++) {
        MATRIX_A a[ROW_BLOCKS];
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
            LOAD_A(a[i], i * 16 * STRIDE + d * 2, STRIDE);
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
            MATRIX_B b;
            LOAD_B(b, (ROWS + (warp() * COLUMN_BLOCKS + j) * 16) * STRIDE + d * 2, STRIDE);
            [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
                sums[i * COLUMN_BLOCKS + j] = MULTIPLY(a[i], b, sums[i * COLUMN_BLOCKS + j]);
        }
    }
}

// Sums go out through shared memory, 16 rows at a time.
void store_sums() {
    const uint quads = COLUMNS / 4;
    uint64_t out_rows = pc.address[5] + uint64_t(first_row) * pc.p.n * DTYPE_BYTES(DTYPE_OUT);
    [[unroll]] for (uint block = 0; block < ROW_BLOCKS; block++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++)
            STORE_SUM(sums[block * COLUMN_BLOCKS + j], (warp() * COLUMN_BLOCKS + j) * 4, SUM_STRIDE);
        barrier();
        for (uint f = gl_LocalInvocationIndex; f < 16 * quads; f += WORKERS) {
            uint r = f / quads, row = block * 16 + r, to = column0 + f % quads * 4;
            if (row >= rows || to >= pc.p.n) continue;
            vec4 sum = uintBitsToFloat(tile[r * SUM_STRIDE + f % quads]);
            if (SCALED != 0) sum *= F32s(pc.address[1]).v[left_of(row) / 16];
            if (DTYPE_OUT == DTYPE_F16) sum = within_half(sum);
            if (pc.p.n % 4 == 0) store_quad(out_rows, (row * pc.p.n + to) / 4, DTYPE_OUT, sum);
            else
                for (uint i = 0; i < 4 && to + i < pc.p.n; i++) store_float(out_rows, row * pc.p.n + to + i, DTYPE_OUT, sum[i]);
        }
        barrier();
    }
}

void main() {
    uvec2 own = U32x2s(pc.address[7]).v[gl_WorkGroupID.x];
    rows = own.y & 255u;
    if (rows == 0) return;
    first_row = own.x;
    matrix = uint64_t(own.y >> 8) * pc.p.n * pc.p.k;
    column0 = gl_WorkGroupID.y * COLUMNS;
    column = min(column0 + gl_LocalInvocationIndex, pc.p.n - 1);
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; i++)
        sums[i] = NO_SUM;
    find_x();
    load_x(0);
    load_w(0);
    [[dont_unroll]] for (uint depth = 0; depth < pc.p.k; depth += DEPTH) {
        store_x();
        store_w();
        barrier();
        uint after = depth + DEPTH < pc.p.k ? depth + DEPTH : depth; // the last loads are not used
        load_x(after);
        load_w(after);
        multiply();
        barrier();
    }
    store_sums();
}
