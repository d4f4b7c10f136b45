#version 460
// coopmat_dense: out[batch][m][n] = sum over k of a[batch][m][k] * b[batch][k][n] in 16x16x16 matrices, all float16,
// sums float32. coopmat_dense_bf16: the same of bfloat16. Operands pass through as words, and the build makes bfloat16
// of the matrices' float16. coopmat_conv (CONV): a convolution, channels last, as such a product. a are the patches
// (images * positions, taps * channels), which are read from the input as they are needed. b are the weights (filters,
// taps * channels), batches the groups.
//
// A workgroup makes 128 x 128 of the result, each of its four subgroups a quarter. Both operands go through shared
// memory, DEPTH of k at a time, in runs of eight as they lie in memory. Runs go along k where A_ALONG_K or B_ALONG_K,
// else along rows of a and columns of b. The next ones are under way during the multiplications. Every run begins at a
// multiple of 16 bytes.
//   K_EDGE  k is no multiple of DEPTH; channels always are
//   SPLITS  workgroups that share the depth of a tile: out is (SPLITS, batch, m, n), parts in float32 that are still to be added
// Larger tiles, more subgroups, and two steps in shared memory at once are slower on an H200. 20 KB let two workgroups
// run on a multiprocessor, and one multiplies while the other one waits. THREADS must be 128. Workgroups: SPLITS *
// batch * ceil(m / ROWS) * ceil(n / COLUMNS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#define BUFFERS 3
#ifdef CONV
#define PUSH ConvPush
#else
#define PUSH MatmulPush
#endif
#include "include/common.glsl"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 2) const uint A_ALONG_K = 1;
layout(constant_id = 3) const uint B_ALONG_K = 0;
layout(constant_id = 4) const uint K_EDGE = 0;
layout(constant_id = 5) const uint SPLITS = 1;

#define ROWS 128
#define COLUMNS 128
#define DEPTH 32
#define DOWN 2 // subgroups below and beside each other
#define ACROSS 2
#define WORKERS (32 * DOWN * ACROSS)
#define ROW_BLOCKS (ROWS / DOWN / 16) // matrices of a subgroup
#define COLUMN_BLOCKS (COLUMNS / ACROSS / 16)
#define A_LOADS (ROWS * DEPTH / 8 / WORKERS) // runs of eight that a thread loads in a step
#define B_LOADS (COLUMNS * DEPTH / 8 / WORKERS)
#define GROUP_ROWS 8 // tiles below each other that are made together, so that they find their columns in the cache

// A tile in shared memory, in runs of eight: `count` lines of `run` numbers and one run more, so that lines lie in different banks.
#define STRIDE(run) ((run) / 8u + 1u)
const uint A_STRIDE = A_ALONG_K != 0 ? STRIDE(DEPTH) : STRIDE(ROWS);
const uint B_STRIDE = B_ALONG_K != 0 ? STRIDE(DEPTH) : STRIDE(COLUMNS);
const uint A_SIZE = A_STRIDE * (A_ALONG_K != 0 ? ROWS : DEPTH);

shared uvec4 tile[A_SIZE + B_STRIDE * (B_ALONG_K != 0 ? COLUMNS : DEPTH)];

MATRIX_SUM sums[ROW_BLOCKS * COLUMN_BLOCKS];
uvec4 a_next[A_LOADS], b_next[B_LOADS];
// Bytes from what all threads share to a thread's own: the loop adds to the former only.
uint a_place[A_LOADS], b_place[B_LOADS];
uint64_t a_base, b_base, out_base;
uint a_step, b_step; // bytes
uint m, n, k, row0, column0, down, across, out_stride;

// Line and first number of run i of a tile whose lines are `run` long. Lines of four runs are taken in the order 0, 4, 1, 5, …: eight
// threads then store to all banks, of neighbours some would meet.
uvec2 run_place(uint i, uint run) {
    uint line = i / (run / 8u);
    if (run == 32u) line = line & ~7u | line << 2u & 4u | line >> 1u & 3u;
    return uvec2(line, i % (run / 8u) * 8u);
}

// ---- operands ---------------------------------------------------------------------------------------------------------

// The runs of a thread in a matrix of `lines` lines across k. Runs past the end repeat the last ones.
uint place_along_k(uvec2 place, uint lines, uint stride) { return (min(place.x, lines - 1u) * stride + place.y) * 2u; }
uint place_across_k(uvec2 place, uint lines, uint stride) { return (place.x * stride + min(place.y, (lines - 1u) / 8u * 8u)) * 2u; }

// Elements past the end of k are 0.
uvec4 inside(uvec4 x, uint depth, bool along_k) {
    if (K_EDGE == 0 || !along_k || depth + 8u <= k) return x;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint at = depth + 2u * i;
        if (at + 1u >= k) x[i] = at < k ? x[i] & 0xffffu : 0u;
    }
    return x;
}

uvec4 load_run(uint64_t base, uint place, uint depth, bool along_k) {
    if (K_EDGE != 0 && depth >= k) return uvec4(0);
    return inside(U32x4s(base + place).v[0], depth, along_k);
}

#define A_RUN(i) run_place(gl_LocalInvocationIndex + (i) * WORKERS, A_ALONG_K != 0 ? DEPTH : ROWS)
#define B_RUN(i) run_place(gl_LocalInvocationIndex + (i) * WORKERS, B_ALONG_K != 0 ? DEPTH : COLUMNS)

#ifdef CONV
ivec3 corners[A_LOADS]; // of a row's patch in the input
uvec3 tap;
uint channel;

void find_operands(uint group) {
    uint taps = pc.p.kernel[0] * pc.p.kernel[1] * pc.p.kernel[2], pixel = pc.p.groups * pc.p.channels;
    m = pc.p.images * pc.p.out_shape[0] * pc.p.out_shape[1] * pc.p.out_shape[2];
    n = pc.p.filters;
    k = taps * pc.p.channels;
    out_stride = pc.p.groups * pc.p.filters;
    a_base = pc.address[0] + group * pc.p.channels * 2;
    b_base = pc.address[1] + (uint64_t(group) * n + column0) * (k * 2);
    out_base = pc.address[2] + uint64_t(group * n) * DTYPE_BYTES(DTYPE_OUT);
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uvec2 place = A_RUN(i);
        uint row = min(row0 + place.x, m - 1u), position = 0, factor = 1;
        [[unroll]] for (int d = 2; d >= 0; d--) {
            corners[i][d] = int(row % pc.p.out_shape[d] * pc.p.stride[d]) - pc.p.padding[d];
            row /= pc.p.out_shape[d];
            position += uint(corners[i][d]) * factor;
            factor *= pc.p.in_shape[d];
        }
        a_place[i] = ((position + row * factor) * pixel + place.y) * 2u; // modulo 2^32, as is what is added
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        b_place[i] = place_along_k(B_RUN(i), n - column0, k);
    b_step = DEPTH * 2;
}

void seek(uint step) {
    uint depth = step * DEPTH;
    channel = depth % pc.p.channels;
    depth /= pc.p.channels;
    tap = uvec3(depth / pc.p.kernel[2] / pc.p.kernel[1], depth / pc.p.kernel[2] % pc.p.kernel[1], depth % pc.p.kernel[2]);
    b_base += step * b_step;
}

void load_next() {
    uvec3 at = tap * uvec3(pc.p.kernel_dilation[0], pc.p.kernel_dilation[1], pc.p.kernel_dilation[2]);
    uint pixel = pc.p.groups * pc.p.channels;
    uint shift = (((at.x * pc.p.in_shape[1] + at.y) * pc.p.in_shape[2] + at.z) * pixel + channel) * 2u;
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uvec3 place = uvec3(corners[i]) + at;
        bool there = place.x < pc.p.in_shape[0] && place.y < pc.p.in_shape[1] && place.z < pc.p.in_shape[2];
        a_next[i] = uvec4(0);
        if (there) a_next[i] = U32x4s(a_base + (a_place[i] + shift)).v[0];
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        b_next[i] = U32x4s(b_base + b_place[i]).v[0];
    b_base += b_step;
    channel += DEPTH;
    if (channel < pc.p.channels) return;
    channel = 0;
    if (++tap.z < pc.p.kernel[2]) return;
    tap.z = 0;
    if (++tap.y < pc.p.kernel[1]) return;
    tap.y = 0;
    tap.x++;
}
#else
uint depth0;

void find_operands(uint batch) {
    m = pc.p.m;
    n = pc.p.n;
    k = pc.p.k;
    out_stride = n;
    int a = 0, b = 0;
    uint rest = batch;
    [[unroll]] for (int d = 2; d >= 0; d--) {
        int i = int(rest % pc.p.batch_shape[d]);
        rest /= pc.p.batch_shape[d];
        a += i * pc.p.a_batch_strides[d];
        b += i * pc.p.b_batch_strides[d];
    }
    uint a_line = uint(pc.p.a_strides[A_ALONG_K != 0 ? 0 : 1]), b_line = uint(pc.p.b_strides[B_ALONG_K != 0 ? 1 : 0]);
    a_base = element_address(pc.address[0], a, 2) + uint64_t(row0) * (A_ALONG_K != 0 ? a_line : 1u) * 2;
    b_base = element_address(pc.address[1], b, 2) + uint64_t(column0) * (B_ALONG_K != 0 ? b_line : 1u) * 2;
    out_base = pc.address[2] + uint64_t(batch) * m * n * DTYPE_BYTES(DTYPE_OUT);
    [[unroll]] for (uint i = 0; i < A_LOADS; i++)
        a_place[i] = A_ALONG_K != 0 ? place_along_k(A_RUN(i), m - row0, a_line) : place_across_k(A_RUN(i), m - row0, a_line);
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        b_place[i] = B_ALONG_K != 0 ? place_along_k(B_RUN(i), n - column0, b_line) : place_across_k(B_RUN(i), n - column0, b_line);
    a_step = DEPTH * 2 * (A_ALONG_K != 0 ? 1u : a_line);
    b_step = DEPTH * 2 * (B_ALONG_K != 0 ? 1u : b_line);
}

void seek(uint step) {
    a_base += uint64_t(step) * a_step;
    b_base += uint64_t(step) * b_step;
    depth0 = step * DEPTH;
}

void load_next() {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uvec2 place = A_RUN(i);
        a_next[i] = load_run(a_base, a_place[i], depth0 + (A_ALONG_K != 0 ? place.y : place.x), A_ALONG_K != 0);
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        uvec2 place = B_RUN(i);
        b_next[i] = load_run(b_base, b_place[i], depth0 + (B_ALONG_K != 0 ? place.y : place.x), B_ALONG_K != 0);
    }
    a_base += a_step;
    b_base += b_step;
    depth0 += DEPTH;
}
#endif

void store_next() {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uvec2 place = A_RUN(i);
        tile[place.x * A_STRIDE + place.y / 8u] = a_next[i];
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        uvec2 place = B_RUN(i);
        tile[A_SIZE + place.x * B_STRIDE + place.y / 8u] = b_next[i];
    }
}

// ---- the product ------------------------------------------------------------------------------------------------------

void multiply() {
    uint row = down * (ROW_BLOCKS * 16), column = across * (COLUMN_BLOCKS * 16);
    [[unroll]] for (uint d = 0; d < DEPTH / 16; d++) {
        MATRIX_A a[ROW_BLOCKS];
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
            uint line = row + i * 16;
            if (A_ALONG_K != 0) coopMatLoad(a[i], tile, line * A_STRIDE + d * 2, A_STRIDE, ROW_MAJOR);
            else coopMatLoad(a[i], tile, d * 16 * A_STRIDE + line / 8, A_STRIDE, COLUMN_MAJOR);
        }
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
            MATRIX_B b;
            uint line = column + j * 16;
            if (B_ALONG_K != 0) coopMatLoad(b, tile, A_SIZE + line * B_STRIDE + d * 2, B_STRIDE, COLUMN_MAJOR);
            else coopMatLoad(b, tile, A_SIZE + d * 16 * B_STRIDE + line / 8, B_STRIDE, ROW_MAJOR);
            [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
                sums[i * COLUMN_BLOCKS + j] = coopMatMulAdd(a[i], b, sums[i * COLUMN_BLOCKS + j]);
        }
    }
}

// Sums go out through shared memory, 16 rows of a subgroup's quarter at a time. Neighbouring threads then write whole
// lines of memory, four numbers each. In `whole` tiles fours begin at a multiple of their size.
void store_tile(uint64_t rows, bool whole) {
    uint line = COLUMN_BLOCKS * 4, place = gl_SubgroupID * 16 * (line + 1); // fours, and one more, as above; 1088 of all are in every tile
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++)
            coopMatStore(sums[i * COLUMN_BLOCKS + j], tile, place + j * 4, line + 1, ROW_MAJOR);
        subgroupBarrier();
        for (uint q = gl_SubgroupInvocationID; q < 16 * line; q += 32) {
            uint row = (down * ROW_BLOCKS + i) * 16 + q / line, column = column0 + across * COLUMN_BLOCKS * 16 + q % line * 4;
            vec4 four = uintBitsToFloat(tile[place + q / line * (line + 1) + q % line]);
            if (whole) {
                store_quad(rows, (row * out_stride + column) / 4, DTYPE_OUT, four);
            } else if (row0 + row < m) {
                [[unroll]] for (uint e = 0; e < 4; e++)
                    if (column + e < n) store_float(rows, row * out_stride + column + e, DTYPE_OUT, four[e]);
            }
        }
        subgroupBarrier();
    }
}

void main() {
#ifdef CONV
    uint tall = pc.p.images * pc.p.out_shape[0] * pc.p.out_shape[1] * pc.p.out_shape[2], wide = pc.p.filters, batches = pc.p.groups;
    uint deep = pc.p.kernel[0] * pc.p.kernel[1] * pc.p.kernel[2] * pc.p.channels;
#else
    uint tall = pc.p.m, wide = pc.p.n, batches = pc.p.batch, deep = pc.p.k;
#endif
    uint rows_of_tiles = (tall + ROWS - 1) / ROWS, columns_of_tiles = (wide + COLUMNS - 1) / COLUMNS;
    uint tiles = rows_of_tiles * columns_of_tiles, rest = flat_workgroup(), at = rest % tiles;
    rest /= tiles;
    if (rest >= batches * SPLITS) return;
    uint batch = rest % batches, split = rest / batches;
    uint group = at / (GROUP_ROWS * columns_of_tiles), height = min(GROUP_ROWS, rows_of_tiles - group * GROUP_ROWS);
    at %= GROUP_ROWS * columns_of_tiles;
    row0 = (group * GROUP_ROWS + at % height) * ROWS;
    column0 = at / height * COLUMNS;
    down = gl_SubgroupID / ACROSS;
    across = gl_SubgroupID % ACROSS;
    find_operands(batch);
    uint steps = (deep + DEPTH - 1) / DEPTH, step = steps * split / SPLITS, end = steps * (split + 1) / SPLITS;
    seek(step);
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; i++)
        sums[i] = MATRIX_SUM(0.0);

    if (step < end) load_next();
    [[dont_unroll]] for (; step < end; step++) {
        store_next();
        if (step + 1 < end) load_next(); // before the barrier: waiting for the others hides some of the way
        barrier();
        multiply();
        barrier();
    }

    uint64_t rows = out_base + (uint64_t(split * batches) * tall * wide + uint64_t(row0) * out_stride) * DTYPE_BYTES(DTYPE_OUT);
    store_tile(rows, row0 + ROWS <= m && column0 + COLUMNS <= n && n % 4 == 0);
}
