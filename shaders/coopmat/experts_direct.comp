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
//   SCALED   1: x comes from half_rows, with a power of two for each 16 rows; 2: x are units of coopmat_experts_gated
//   IN_PLACE out has the order of `left`, else that of the sorted rows
//
// A sum takes its terms in any order, as long as both factors have the same. Four lanes share a column of B. Lane c takes codes 32 c to
// 32 c + 31 of 128. Codes i and i + 4 of a word are neighbours in B, since one mask finds both (of 8 bits, i and i + 2). x is reordered
// on its way to shared memory. Every kernel has this order, so a row's result does not depend on the kernel.
//
// n is a multiple of 16, k of 32. THREADS must be 128. Workgroups: (tiles, ceil(n * matrices / COLUMNS)).

#extension GL_GOOGLE_include_directive : require
#ifndef EMULATED
#include "coopmat.glsl"
#endif
#define BUFFERS 13
#define PUSH SortedExpertsPush
#include "include/common.glsl"
#include "include/activation.glsl"

layout(constant_id = 1) const uint GROUP = 64;
layout(constant_id = 2) const uint DTYPE_SCALES = DTYPE_F16;
layout(constant_id = 3) const uint MODE = MODE_AFFINE;
layout(constant_id = 4) const uint SCALED = 0;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 6) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 7) const uint HAS_BIAS = 0;
layout(constant_id = 8) const uint UNIT = EXPERT_UNIT_SILU;
layout(constant_id = 9) const uint IN_PLACE = 0;

#include "include/vec4.glsl"

#define WORKERS 128
#define SHRINK 16.0 // of units
#define ROW_BLOCKS (ROWS / 16)
#define COLUMN_BLOCKS (COLUMNS / 64) // of a subgroup
#define SIDES (2 * COLUMN_BLOCKS)    // columns of a lane
#define EIGHTS (DEPTH / 32)          // of a lane's codes in a step
#define CODE_WORDS (EIGHTS * WEIGHT_BITS / 4)
#define LOADS (ROWS * EIGHTS / 32) // uvec4 of x a thread: of one row
#define STRIDE (DEPTH / 8 + 1)     // uvec4 from row to row of x: one more, so that rows are in different banks
#define TILE (ROWS * STRIDE)
#define SUM_STRIDE (COLUMNS / 4 + 1) // and of sums
#define PATCH (16 * SUM_STRIDE)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#ifdef GATED
#define JOINED 2 // matrices
#else
#define JOINED 1
#endif

// NVIDIA's driver (580) gives a thread no more registers than let as many workgroups run at once as shared memory does.
// Larger tiles need more of both: see matmul.comp.
shared uvec4 tile[LARGER(LARGER(TILE, PATCH), MIN_SHARED)];
#include "tiles.glsl"
MATRIX_SUM sums[ROW_BLOCKS * COLUMN_BLOCKS];

uvec4 x_next[LOADS];
uint codes[SIDES * CODE_WORDS], codes_next[SIDES * CODE_WORDS];
uint scale_pairs[SIDES], scales_next[SIDES], biases_next[SIDES];
uint first_row, rows, expert;
uint64_t x_row; // of the thread's part of x
bool has_row;
// Bytes from a block of 16 columns to the lane's first column in it.
uint codes_place, scales_place;
const uint SCALE_BYTES = MODE == MODE_MXFP4 ? 1 : 2;

uint left_of(uint row) { return U32s(pc.address[11]).v[first_row + row]; }
uint x_row_of(uint left) { return min(left / pc.p.divisor, pc.p.x_rows - 1); }

// The block of 16 columns of block j of the subgroup, in its matrix.
uint block_of(uint j) { return (gl_WorkGroupID.y * (COLUMNS / 16) + warp() * COLUMN_BLOCKS + j) / JOINED; }

void find_places() {
    uint task = gl_LocalInvocationIndex, row = task / (EIGHTS * 4 / LOADS);
    has_row = row < rows;
    x_row = pc.address[0] + uint64_t(x_row_of(left_of(min(row, rows - 1)))) * (pc.p.k * 2);
    uint own = lane() / 4;
    codes_place = own * (pc.p.k / 8 * WEIGHT_BITS);
    scales_place = own * (pc.p.k / GROUP * SCALE_BYTES);
}

// Lane c of four, or what a thread loads for it, takes the depths from this one on.
uint depth_of(uint step, uint c) { return step * DEPTH / 128 * 128 + c * 32; }
uint half_of(uint step) { return step * DEPTH % 128 / 4; }

void load_x(uint step) {
    uint eight = gl_LocalInvocationIndex % EIGHTS, c = gl_LocalInvocationIndex / EIGHTS * LOADS % 4;
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint depth = depth_of(step, c + i);
        bool inside = has_row && depth < pc.p.k;
        x_next[i] = inside ? U32x4s(x_row + (depth + half_of(step) + eight * 8) * 2).v[0] : uvec4(0);
    }
}

uint low_halves(uint a, uint b) { return a & 0xffffu | b << 16; }
uint high_halves(uint a, uint b) { return a >> 16 | b & 0xffff0000u; }

// Pair q of the eight numbers that are multiplied with eight codes.
uint x_pair(uvec4 x, uint q) {
    if (WEIGHT_BITS == 8) return q % 2 == 0 ? low_halves(x[q], x[q + 1]) : high_halves(x[q - 1], x[q]);
    return q % 2 == 0 ? low_halves(x[q / 2], x[q / 2 + 2]) : high_halves(x[q / 2], x[q / 2 + 2]);
}

void store_x() {
    uint task = gl_LocalInvocationIndex, eight = task % EIGHTS, c = task / EIGHTS * LOADS % 4, row = task / (EIGHTS * 4 / LOADS);
    [[unroll]] for (uint q = 0; q < 4; q++) {
        uint to = row * STRIDE + eight * 4 + q;
#if LOADS == 4
        uvec4 four;
        [[unroll]] for (uint i = 0; i < 4; i++)
            four[i] = x_pair(x_next[i], q);
        tile[to] = four;
#else
        [[unroll]] for (uint i = 0; i < LOADS; i++)
            tile[to][c + i] = x_pair(x_next[i], q);
#endif
    }
}

void load_w(uint step) {
    // Past the end x is 0.
    uint depth = min(depth_of(step, lane() % 4), pc.p.k - 32);
    uint code = codes_place + (depth + half_of(step)) / 8 * WEIGHT_BITS, group = scales_place + depth / GROUP * SCALE_BYTES;
    [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
        uint matrix = 2 + j % JOINED * 3;
        uint block = min(block_of(j), pc.p.n / 16 - 1);
        [[unroll]] for (uint h = 0; h < 2; h++) {
            uint side = 2 * j + h;
            uint64_t column = uint64_t(expert) * pc.p.n + (block * 16 + h * 8);
            uint64_t at = pc.address[matrix] + column * (pc.p.k / 8 * WEIGHT_BITS);
            if (CODE_WORDS % 4 == 0) {
                [[unroll]] for (uint q = 0; q < CODE_WORDS / 4; q++) {
                    uvec4 four = U32x4s(at + (code + q * 16)).v[0];
                    [[unroll]] for (uint i = 0; i < 4; i++)
                        codes_next[side * CODE_WORDS + q * 4 + i] = four[i];
                }
            } else {
                uvec2 two = U32x2s(at + code).v[0];
                codes_next[side * CODE_WORDS] = two.x;
                codes_next[side * CODE_WORDS + 1] = two.y;
            }
            uint64_t to_group = column * (pc.p.k / GROUP * SCALE_BYTES);
            if (MODE == MODE_MXFP4) {
                scales_next[side] = uint(U8s(pc.address[matrix + 1] + to_group + group).v[0]);
            } else {
                scales_next[side] = uint(U16s(pc.address[matrix + 1] + to_group + group).v[0]);
                biases_next[side] = uint(U16s(pc.address[matrix + 2] + to_group + group).v[0]);
            }
        }
    }
}

#ifdef EMULATED
uint half_pair(vec2 x) { return word_of(x); }
#else
uint half_pair(vec2 x) { return packHalf2x16(x); }
#endif

// Scale and bias of affine codes as float16. Of mxfp4 two factors whose product is the scale times 2^14: codes are read 2^14 too small.
uint pair_of_scales(uint scale, uint bias) {
    if (MODE == MODE_MXFP4) {
        int exponent = int(scale) - 127 + 14, first = exponent >> 1;
        return uint(clamp(first + 15, 0, 31) | clamp(exponent - first + 15, 0, 31) << 16) << 10;
    }
    if (DTYPE_SCALES == DTYPE_F16) return scale | bias << 16;
    return half_pair(vec2(bf16_value(scale), bf16_value(bias)));
}

void use_w() {
    codes = codes_next;
    [[unroll]] for (uint side = 0; side < SIDES; side++)
        scale_pairs[side] = pair_of_scales(scales_next[side], biases_next[side]);
}

// Pair i < 2 of four numbers of a column that matrix `depth` of a step has.
PAIR weights_of(uint side, uint depth, uint i) {
    PAIR both = pair_of(scale_pairs[side]);
    if (WEIGHT_BITS == 8) return fma(bytes(codes[side * CODE_WORDS + depth] >> (8 * i)), both.xx, both.yy);
    uint u = codes[side * CODE_WORDS + depth / 2] >> (depth % 2 * 8);
    if (MODE == MODE_MXFP4) {
        u >>= 4 * i;
        return pair_of((u & 0x00070007u) << 9 | (u & 0x00080008u) << 12) * both.xx * both.yy;
    }
    return fma(i == 0 ? low_nibbles(u) : high_nibbles(u), both.xx, both.yy);
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

vec4 biased(vec4 sum, uint matrix, uint column) {
    if (HAS_BIAS == 0) return sum;
    [[unroll]] for (uint i = 0; i < 4; i++)
        sum[i] += load_float(pc.address[8 + matrix], expert * pc.p.n + column + i, DTYPE_BIAS);
    return sum;
}

vec4 units_of(vec4 gate, vec4 up) {
    const uint which = UNIT == EXPERT_UNIT_CLIPPED ? ACTIVATION_CLIPPED : UNIT == EXPERT_UNIT_SILU ? ACTIVATION_SILU : ACTIVATION_GELU_TANH;
    vec4 units;
    [[unroll]] for (uint i = 0; i < 4; i++)
        units[i] = gated_value(gate[i], up[i], which);
    return units;
}

// Sums go out through shared memory, 16 rows at a time.
void store_sums() {
    const uint quads = COLUMNS / JOINED / 4;
    [[unroll]] for (uint block = 0; block < ROW_BLOCKS; block++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++)
            STORE_SUM(sums[block * COLUMN_BLOCKS + j], (warp() * COLUMN_BLOCKS + j) * 4, SUM_STRIDE);
        barrier();
        for (uint f = gl_LocalInvocationIndex; f < 16 * quads; f += WORKERS) {
            uint r = f / quads, quad = f % quads, row = block * 16 + r, column = (gl_WorkGroupID.y * quads + quad) * 4;
            if (row >= rows || column >= pc.p.n) continue;
            uint left = left_of(row), from = r * SUM_STRIDE + quad;
            float power = SCALED == 1 ? F32s(pc.address[1]).v[x_row_of(left) / 16] : SCALED == 2 ? SHRINK : 1.0;
#ifdef GATED
            from += quad / 4 * 4; // blocks of 16 columns alternate
            vec4 sum = units_of(biased(uintBitsToFloat(tile[from]) * power, 0, column),
                                biased(uintBitsToFloat(tile[from + 4]) * power, 1, column)) /
                       SHRINK;
#else
            vec4 sum = biased(uintBitsToFloat(tile[from]) * power, 0, column);
#endif
            if (DTYPE_OUT == DTYPE_F16) sum = within_half(sum);
            uint64_t to = pc.address[10] + uint64_t(IN_PLACE == 1 ? left : first_row + row) * (pc.p.n * DTYPE_BYTES(DTYPE_OUT));
            store_quad(to, column / 4, DTYPE_OUT, sum);
        }
        barrier();
    }
}

void main() {
    uvec2 own = U32x2s(pc.address[12]).v[gl_WorkGroupID.x];
    rows = own.y & 127u;
    if (rows == 0) return;
    first_row = own.x;
    expert = own.y >> 7;
    find_places();
    find_bases((pc.p.k + gl_LocalInvocationIndex) >> 31);
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; i++)
        sums[i] = NO_SUM;
    uint steps = (pc.p.k + 127) / 128 * (128 / DEPTH);
    load_x(0);
    load_w(0);
    [[dont_unroll]] for (uint step = 0; step < steps; step++) {
        store_x();
        use_w();
        barrier();
        uint after = min(step + 1, steps - 1); // the last loads are not used
        load_x(after);
        load_w(after);
        multiply();
        barrier();
    }
    store_sums();
}
