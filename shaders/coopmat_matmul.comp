#version 460
// coopmat_matmul: out (m, N) = x (m, K) . w in 16x16x16 matrices; x float16, w affine-quantized in fragment order (coopmat_repack).
// coopmat_gated: out (m, N / 2) = scale * silu(x . gate) * (x . up) in float16, within its range; blocks of 16 columns of w are of gate and up
// in turns.
// coopmat_heads: the columns are heads of q, k and v, which are normalised, turned and cached (coopmat_heads.glsl).
//
// A workgroup of 4 subgroups makes a ROWS x 128 tile, each subgroup all rows of 32 columns. x goes through shared memory, 64 columns a
// step, the next step's loads in flight during the multiplications. A lane loads the codes of the elements it owns of w and dequantizes
// them in registers: w takes no shared memory, no barrier and a quarter of the traffic.
//   ROWS    32, 64, 128            STAGES  tiles of x in shared memory: 2 saves a barrier a step
//   SPLITS  > 1: the depth is shared by SPLITS workgroups, out is float32 (SPLITS, m, N) and wants sum_splits
//   SCALED  x comes from half_rows, with a power of two for each 16 rows
// The loop over the depth is not unrolled: small code matters more in a chain of kernels. THREADS must be 128.
// Workgroups: SPLITS * ceil(m / ROWS) * ceil(N / 128), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#include "coopmat.glsl"
#ifdef WITH_HEADS
#define BUFFERS 11
#define PUSH CoopmatHeadsPush
#else
#define BUFFERS 5
#define PUSH CoopmatMatmulPush
#endif
#include "common.glsl"

layout(constant_id = 1) const uint N = 1024;
layout(constant_id = 2) const uint K = 1024;
layout(constant_id = 3) const uint GROUP = 64;
layout(constant_id = 4) const uint SPLITS = 1;
layout(constant_id = 5) const uint SCALED = 0;
layout(constant_id = 6) const uint DTYPE_OUT = DTYPE_F16;

layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F16Rows { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F32Rows { float v[]; };

#define ROW_BLOCKS (ROWS / 16)
#define X_LOADS (ROWS / 16)     // uvec4 a thread and step
#define CODE_LOADS (BITS / 4)   // uvec4 a lane, column block and step
#define STRIDE 9                // uvec4 from row to row of the tile of x: 8 and one, so that rows lie in different banks
#define TILE (ROWS * STRIDE)
#ifdef WITH_HEADS
#define HEAD_STRIDE 33          // uvec4 from row to row of 128 sums
#define PATCHES (32 * HEAD_STRIDE)
#else
#define PATCH 128               // uvec4 in which a subgroup hands out 16 x 32 sums
#define PATCHES (4 * PATCH)
#endif

#ifdef GATED
const uint COLUMNS = N / 2;     // of out
#define WIDE 1                  // column blocks of out that a subgroup has
#else
const uint COLUMNS = N;
#define WIDE 2
#endif
const uint STEPS = (K + 63u) / 64u;
const uint GROUPS = STEPS * 64u / GROUP;

shared uvec4 tile[STAGES * TILE > PATCHES ? STAGES * TILE : PATCHES];

MATRIX_SUM sums[ROW_BLOCKS * 2];
uvec4 x_next[X_LOADS], codes[2 * CODE_LOADS], codes_next[2 * CODE_LOADS];
uvec2 affine[4], affine_next[4]; // two groups of a column block and step where GROUP is 32
uint row0, column0, column_block;

void load_x(uint step) {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * 128, row = min(row0 + f / 8, pc.p.m - 1), eight = step * 8 + f % 8;
        x_next[i] = K % 64 == 0 || eight < K / 8 ? U32x4s(pc.address[0]).v[row * (K / 8) + eight] : uvec4(0);
    }
}

void store_x(uint stage) {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * 128;
        tile[stage * TILE + f / 8 * STRIDE + f % 8] = x_next[i];
    }
}

void load_w(uint step) {
    uint lane = gl_SubgroupInvocationID;
    [[unroll]] for (uint j = 0; j < 2; j++) {
        [[unroll]] for (uint h = 0; h < CODE_LOADS; h++) {
            uint at = ((column_block + j) * STEPS + step) * CODE_LOADS + h;
            codes_next[j * CODE_LOADS + h] = U32x4s(pc.address[2]).v[at * 32 + lane];
        }
        uint group = (column_block + j) * GROUPS + step * 64 / GROUP;
        affine_next[j * 2] = U32x2s(pc.address[3]).v[group * 32 + lane];
        if (GROUP == 32) affine_next[j * 2 + 1] = U32x2s(pc.address[3]).v[(group + 1) * 32 + lane];
    }
}

void use_w() {
    codes = codes_next;
    affine = affine_next;
}

// 0x6400 | n is the float16 1024 + n, 0x5400 | n << 4 is 64 + n: codes become floats without a conversion.
f16vec2 low_nibbles(uint u) { return unpackFloat2x16((u & 0x000f000fu) | 0x64006400u) - f16vec2(1024.0hf); }
f16vec2 high_nibbles(uint u) { return unpackFloat2x16((u & 0x00f000f0u) | 0x54005400u) - f16vec2(64.0hf); }
f16vec2 bytes(uint u) { return unpackFloat2x16((u & 0x00ff00ffu) | 0x64006400u) - f16vec2(1024.0hf); }

// The lane's part of matrix `depth` of column block j.
MATRIX_B weights(uint j, uint depth) {
    uvec2 pair = GROUP == 32 && depth >= 2 ? affine[j * 2 + 1] : affine[j * 2];
    f16vec2 s = unpackFloat2x16(pair.x), t = unpackFloat2x16(pair.y), p[4];
#if BITS == 4
    uint u = codes[j][depth];
    p[0] = low_nibbles(u);
    p[1] = high_nibbles(u);
    p[2] = low_nibbles(u >> 8);
    p[3] = high_nibbles(u >> 8);
#else
    uvec4 two = codes[j * 2 + depth / 2];
    uvec2 u = depth % 2 == 0 ? two.xy : two.zw;
    p[0] = bytes(u.x);
    p[1] = bytes(u.x >> 8);
    p[2] = bytes(u.y);
    p[3] = bytes(u.y >> 8);
#endif
    MATRIX_B b;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        f16vec2 first = fma(p[i], s.xx, s.yy), second = fma(p[i + 2], t.xx, t.yy);
        b[2 * i] = first.x;
        b[2 * i + 1] = first.y;
        b[2 * i + 4] = second.x;
        b[2 * i + 5] = second.y;
    }
    return b;
}

void multiply(uint stage) {
    [[unroll]] for (uint depth = 0; depth < 4; depth++) {
        MATRIX_A a[ROW_BLOCKS];
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) coopMatLoad(a[i], tile, stage * TILE + i * 16 * STRIDE + depth * 2, STRIDE, ROW_MAJOR);
        [[unroll]] for (uint j = 0; j < 2; j++) {
            MATRIX_B b = weights(j, depth);
            [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) sums[i * 2 + j] = coopMatMulAdd(a[i], b, sums[i * 2 + j]);
        }
    }
}

#ifdef GATED
void gate() {
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
        [[unroll]] for (uint e = 0; e < sums[0].length(); e++) {
            float x = sums[i * 2][e], y = pc.p.scale * (x / (1.0 + exp(-x)) * sums[i * 2 + 1][e]);
            sums[i * 2][e] = clamp(y, -65504.0, 65504.0);
        }
    }
}
#endif

#ifdef WITH_HEADS
#include "coopmat_heads.glsl"
#else
// Whole tiles go from registers to memory.
void store_whole(uint64_t rows, uint column) {
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
        [[unroll]] for (uint j = 0; j < WIDE; j++) {
            uint at = i * 16 * COLUMNS + column + j * 16;
            if (SPLITS > 1 || DTYPE_OUT == DTYPE_F32) coopMatStore(sums[i * 2 + j], F32Rows(rows).v, at, COLUMNS, ROW_MAJOR);
            else coopMatStore(MATRIX_SUM_F16(sums[i * 2 + j]), F16Rows(rows).v, at, COLUMNS, ROW_MAJOR);
        }
    }
}

// Edges, and results without a matrix type, go through shared memory: 16 rows of the subgroup's columns.
void store_block(uint i, uint64_t rows, uint column) {
    uint place = gl_SubgroupID * PATCH, lane = gl_SubgroupInvocationID;
    [[unroll]] for (uint j = 0; j < WIDE; j++) coopMatStore(sums[i * 2 + j], tile, place + j * 4, 8, ROW_MAJOR);
    subgroupBarrier();
    [[dont_unroll]] for (uint r = 0; r < 16; r++) {
        uint row = i * 16 + r;
        float sum = uintBitsToFloat(tile[place + r * 8 + lane / 4][lane % 4]);
        if (row0 + row < pc.p.m && column + lane < COLUMNS && lane < 16 * WIDE)
            store_float(rows, row * COLUMNS + column + lane, SPLITS > 1 ? DTYPE_F32 : DTYPE_OUT, sum);
    }
    subgroupBarrier();
}

// Written out, because a loop around a loop is not unrolled and the sums must stay in registers.
void store_guarded(uint64_t rows, uint column) {
    barrier(); // all are done with the tile
    store_block(0, rows, column);
    store_block(1, rows, column);
#if ROW_BLOCKS > 2
    store_block(2, rows, column);
    store_block(3, rows, column);
#endif
#if ROW_BLOCKS > 4
    store_block(4, rows, column);
    store_block(5, rows, column);
    store_block(6, rows, column);
    store_block(7, rows, column);
#endif
}
#endif

void main() {
    uint down = (pc.p.m + ROWS - 1) / ROWS, across = (N + 127) / 128, group = flat_workgroup(), split = group / (down * across);
    if (split >= SPLITS) return;
    row0 = group % down * ROWS;
    column0 = group / down % across * 128;
    column_block = column0 / 16 + gl_SubgroupID * 2;
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * 2; i++) sums[i] = MATRIX_SUM(0.0);

    uint step = STEPS * split / SPLITS, end = STEPS * (split + 1) / SPLITS;
    load_x(step);
    load_w(step);
#if STAGES == 1
    [[dont_unroll]] for (step++; step < end; step++) {
        store_x(0);
        use_w();
        barrier();
        load_x(step);
        load_w(step);
        multiply(0);
        barrier();
    }
    store_x(0);
    use_w();
    barrier();
    multiply(0);
#else
    uint stage = 0;
    [[dont_unroll]] for (step++; step < end; step++) {
        store_x(stage);
        use_w();
        barrier();
        load_x(step);
        load_w(step);
        multiply(stage);
        stage ^= 1;
    }
    store_x(stage);
    use_w();
    barrier();
    multiply(stage);
#endif

    if (SCALED != 0) {
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
            float power = F32s(pc.address[1]).v[min(row0 / 16 + i, (pc.p.m - 1) / 16)];
            [[unroll]] for (uint j = 0; j < 2; j++) sums[i * 2 + j] *= power;
        }
    }
#ifdef WITH_HEADS
    finish_heads();
#else
#ifdef GATED
    gate();
#endif
    uint bytes = SPLITS > 1 ? 4 : DTYPE_BYTES(DTYPE_OUT), column = (column0 + gl_SubgroupID * 32) * WIDE / 2;
    uint64_t rows = pc.address[4] + (uint64_t(split) * pc.p.m + row0) * (COLUMNS * bytes);
    bool whole = row0 + ROWS <= pc.p.m && column0 + 128 <= N && COLUMNS % 8 == 0;
    if (whole && (SPLITS > 1 || DTYPE_OUT != DTYPE_BF16)) store_whole(rows, column);
    else store_guarded(rows, column);
#endif
}
