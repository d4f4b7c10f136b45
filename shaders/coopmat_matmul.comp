#version 460
// coopmat_matmul: out (m, N) = x (m, K) . w in 16x16x16 matrices; x float16, w affine-quantized in fragment order (coopmat_repack).
// coopmat_gated: out (m, N / 2) = scale * silu(x . gate) * (x . up) in float16, within its range; blocks of 16 columns of w are of gate and up
// in turns.
// coopmat_heads: the columns are heads of q, k and v, which are normalised, turned and cached (coopmat_heads.glsl).
//
// A workgroup makes a ROWS x 128 tile, each of 4 * ALONG subgroups all rows of 32 columns. x goes through shared memory,
// 64 * DEEP columns a round, the next round's loads in flight during the multiplications. A lane loads the codes of the elements it owns
// of w and dequantizes them in registers: w takes no shared memory, no barrier and a quarter of the traffic.
//   ROWS    16, 32, 64
//   ALONG   subgroups that share columns and take turns along the depth, where there are few workgroups; added up at the end
//   DEEP    steps of 64 a round, ALONG or more: more at once hide more of the latency of memory
//   SPLITS  > 1: the depth is shared by SPLITS workgroups, out is float32 (SPLITS, m, N) and wants sum_splits
//   SCALED  x comes from half_rows, with a power of two for each 16 rows
// The loop over the depth is not unrolled: small code matters more in a chain of kernels. THREADS must be 128 * ALONG.
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

#include "quads.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F16Rows { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F32Rows { float v[]; };

#define TILE_COLUMNS 128
#define ACROSS 4                // subgroups beside each other
#define WORKERS (128 * ALONG)
#define ROW_BLOCKS (ROWS / 16)
#define EACH (DEEP / ALONG)     // steps of a round that a subgroup takes
#define EIGHTS (8 * DEEP)       // uvec4 of a row of x and a round
#define X_LOADS (ROWS * EIGHTS / WORKERS)
#define CODE_LOADS (BITS / 4)   // uvec4 a lane, column block and step
#define STRIDE (EIGHTS + 1)     // uvec4 from row to row of the tile of x: one more, so that rows lie in different banks
#define TILE (ROWS * STRIDE)
#if defined(WITH_HEADS) && ALONG == 1
#define SUM_BLOCKS 2            // blocks of 16 rows whose sums go through shared memory at once
#else
#define SUM_BLOCKS 1
#endif
#define SUM_STRIDE (TILE_COLUMNS / 4 + 1) // uvec4 from row to row of them
#define PATCHES (ALONG * SUM_BLOCKS * 16 * SUM_STRIDE)

#ifdef GATED
const uint COLUMNS = N / 2;     // of out
#define WIDE 1                  // column blocks of out that a subgroup has
#else
const uint COLUMNS = N;
#define WIDE 2
#endif
const uint STEPS = (K + 63u) / 64u;
const uint ROUNDS = (STEPS + DEEP - 1u) / DEEP;
const uint GROUPS = STEPS * 64u / GROUP;

// NVIDIA's driver (580) gives a thread no more registers than let as many workgroups run at once as shared memory does: with less than
// this, 64 rows get 128 where they want 150, and take 10 to 20 % longer; with 16 KB fewer workgroups run at once.
#define LEAST_SHARED (ROWS < 64 ? 640 : 800) // uvec4
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
shared uvec4 tile[LARGER(LARGER(TILE, PATCHES), LEAST_SHARED)];
MATRIX_SUM sums[ROW_BLOCKS * 2];
uvec4 x_next[X_LOADS], codes[2 * EACH * CODE_LOADS], codes_next[2 * EACH * CODE_LOADS];
uvec2 affine[4 * EACH], affine_next[4 * EACH]; // two groups of a column block and step where GROUP is 32
uint row0, column0, column_block, across, along;

void load_x(uint round) {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS, row = min(row0 + f / EIGHTS, pc.p.m - 1), eight = round * EIGHTS + f % EIGHTS;
        x_next[i] = K % (64 * DEEP) == 0 || eight < K / 8 ? U32x4s(pc.address[0]).v[row * (K / 8) + eight] : uvec4(0);
    }
}

void store_x() {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS;
        tile[f / EIGHTS * STRIDE + f % EIGHTS] = x_next[i];
    }
}

void load_w(uint round) {
    uint lane = gl_SubgroupInvocationID;
    [[unroll]] for (uint part = 0; part < 2 * EACH; part++) {
        // Behind the end x is 0.
        uint block = column_block + part / EACH, step = round * DEEP + along * EACH + part % EACH;
        if (STEPS % DEEP != 0) step = min(step, STEPS - 1);
        [[unroll]] for (uint h = 0; h < CODE_LOADS; h++) {
            codes_next[part * CODE_LOADS + h] = U32x4s(pc.address[2]).v[((block * STEPS + step) * CODE_LOADS + h) * 32 + lane];
        }
        uint group = block * GROUPS + step * 64 / GROUP;
        affine_next[part * 2] = U32x2s(pc.address[3]).v[group * 32 + lane];
        if (GROUP == 32) affine_next[part * 2 + 1] = U32x2s(pc.address[3]).v[(group + 1) * 32 + lane];
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

// The lane's part of matrix `depth` < 4 of a column block and step.
MATRIX_B weights(uint part, uint depth) {
    uvec2 pair = GROUP == 32 && depth >= 2 ? affine[part * 2 + 1] : affine[part * 2];
    f16vec2 s = unpackFloat2x16(pair.x), t = unpackFloat2x16(pair.y), p[4];
#if BITS == 4
    uint u = codes[part][depth];
    p[0] = low_nibbles(u);
    p[1] = high_nibbles(u);
    p[2] = low_nibbles(u >> 8);
    p[3] = high_nibbles(u >> 8);
#else
    uvec4 two = codes[part * 2 + depth / 2];
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

void multiply() {
    uint place = along * EACH * 8;
    [[unroll]] for (uint depth = 0; depth < 4 * EACH; depth++) {
        MATRIX_A a[ROW_BLOCKS];
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) coopMatLoad(a[i], tile, place + i * 16 * STRIDE + depth * 2, STRIDE, ROW_MAJOR);
        [[unroll]] for (uint j = 0; j < 2; j++) {
            MATRIX_B b = weights(j * EACH + depth / 4, depth % 4);
            [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) sums[i * 2 + j] = coopMatMulAdd(a[i], b, sums[i * 2 + j]);
        }
    }
}

// Sums of SUM_BLOCKS blocks of rows from block `first` on go to shared memory, of each of ALONG subgroups by themselves.
void store_sums(uint first) {
    [[unroll]] for (uint i = 0; i < SUM_BLOCKS; i++) {
        [[unroll]] for (uint j = 0; j < 2; j++)
            coopMatStore(sums[(first + i) * 2 + j], tile, ((along * SUM_BLOCKS + i) * 16) * SUM_STRIDE + across * 8 + j * 4, SUM_STRIDE, ROW_MAJOR);
    }
}

// The same for a block that is no constant: the sums stay in registers, so their numbers must be.
void share_sums(uint first) {
    barrier();
    if (first == 0) store_sums(0);
#if ROW_BLOCKS > SUM_BLOCKS
    else if (first == SUM_BLOCKS) store_sums(SUM_BLOCKS);
#endif
#if ROW_BLOCKS > 2 * SUM_BLOCKS
    else if (first == 2 * SUM_BLOCKS) store_sums(2 * SUM_BLOCKS);
    else store_sums(3 * SUM_BLOCKS);
#endif
    barrier();
}

// Four neighbouring sums of a row of these.
vec4 shared_sum(uint row, uint quad) {
    vec4 sum = uintBitsToFloat(tile[row * SUM_STRIDE + quad]);
    [[unroll]] for (uint i = 1; i < ALONG; i++) sum += uintBitsToFloat(tile[(i * SUM_BLOCKS * 16 + row) * SUM_STRIDE + quad]);
    return sum;
}

#ifdef GATED
#define GATE(x, y) clamp(pc.p.scale * (x / (1.0 + exp(-x)) * y), -65504.0, 65504.0)
void gate() {
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
        [[unroll]] for (uint e = 0; e < sums[0].length(); e++) sums[i * 2][e] = GATE(sums[i * 2][e], sums[i * 2 + 1][e]);
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

// Edges, results without a matrix type, and sums that several subgroups have a share of go through shared memory, 16 rows at a time.
void store_shared(uint64_t rows, uint first_column) {
    const uint dtype = SPLITS > 1 ? DTYPE_F32 : DTYPE_OUT, quads = TILE_COLUMNS * WIDE / 8;
    [[dont_unroll]] for (uint block = 0; block < ROW_BLOCKS; block++) {
        share_sums(block);
        for (uint f = gl_LocalInvocationIndex; f < 16 * quads; f += WORKERS) {
            uint r = f / quads, quad = f % quads, row = block * 16 + r, column = first_column + quad * 4;
            if (row0 + row >= pc.p.m || column >= COLUMNS) continue;
#ifdef GATED
            quad = quad / 4 * 8 + quad % 4;
            vec4 x = shared_sum(r, quad), y = shared_sum(r, quad + 4), sum = GATE(x, y);
#else
            vec4 sum = shared_sum(r, quad);
#endif
            if (COLUMNS % 4 == 0) store_quad(rows, (row * COLUMNS + column) / 4, dtype, sum);
            else for (uint i = 0; i < 4 && column + i < COLUMNS; i++) store_float(rows, row * COLUMNS + column + i, dtype, sum[i]);
        }
    }
}
#endif

void main() {
    uint down = (pc.p.m + ROWS - 1) / ROWS, wide = (N + TILE_COLUMNS - 1) / TILE_COLUMNS, group = flat_workgroup(), split = group / (down * wide);
    if (split >= SPLITS) return;
    across = gl_SubgroupID % ACROSS;
    along = gl_SubgroupID / ACROSS;
    row0 = group % down * ROWS;
    column0 = group / down % wide * TILE_COLUMNS;
    column_block = column0 / 16 + across * 2;
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * 2; i++) sums[i] = MATRIX_SUM(0.0);

    uint round = ROUNDS * split / SPLITS, end = ROUNDS * (split + 1) / SPLITS;
    load_x(round);
    load_w(round);
    [[dont_unroll]] for (round++; round < end; round++) {
        store_x();
        use_w();
        barrier();
        load_x(round);
        load_w(round);
        multiply();
        barrier();
    }
    store_x();
    use_w();
    barrier();
    multiply();

    if (SCALED != 0) {
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
            float power = F32s(pc.address[1]).v[min(row0 / 16 + i, (pc.p.m - 1) / 16)];
            [[unroll]] for (uint j = 0; j < 2; j++) sums[i * 2 + j] *= power;
        }
    }
#ifdef WITH_HEADS
    finish_heads();
#else
    uint bytes = SPLITS > 1 ? 4 : DTYPE_BYTES(DTYPE_OUT), column = column0 * WIDE / 2;
    uint64_t rows = pc.address[4] + (uint64_t(split) * pc.p.m + row0) * (COLUMNS * bytes);
    bool whole = row0 + ROWS <= pc.p.m && column0 + TILE_COLUMNS <= N && COLUMNS % 8 == 0;
    if (ALONG == 1 && whole && (SPLITS > 1 || DTYPE_OUT != DTYPE_BF16)) {
#ifdef GATED
        gate();
#endif
        store_whole(rows, column + across * 16 * WIDE);
    } else store_shared(rows, column);
#endif
}
