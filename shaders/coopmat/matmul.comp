#version 460
// coopmat_matmul: out (m, N) = x (m, K) . w in 16x16x16 matrices; x float16, w quantized in fragment order (coopmat_repack).
// coopmat_gated: out (m, N / 2) = scale * activation(x . gate) * (x . up) in float16; blocks of
// 16 columns of w are of gate and up, interleaved.
// coopmat_qkv: the columns are heads of q, k and v, which get their biases and norms, are rotated and cached (qkv_epilogue.glsl).
// Results in float16 stay within its range.
//
// A workgroup makes a ROWS x COLUMNS tile, each of ACROSS * ALONG subgroups all rows of its part of the columns. x goes
// through shared memory, 64 * DEEP columns a round, the next round's loads in flight during the multiplications. A lane
// loads the codes of the elements it owns of w and dequantizes them in registers. So w takes no shared memory, no
// barrier and a quarter of the traffic.
//   ROWS    16, 32, 64
//   COLUMNS 128, or 192 or 256 for 64 rows of plain and gated products: x then serves more products
//   ALONG   subgroups that share columns and take turns along the depth, if there are few workgroups; added up at the end
//   DEEP    steps of 64 a round, ALONG or more: more at once hide more of the latency of memory
//   SCALED  x comes from half_rows, with a power of two for each 16 rows
// The loop over the depth is not unrolled: small code matters more in a chain of kernels. THREADS must be WORKERS.
// Workgroups: (ceil(m / ROWS), ceil(N / COLUMNS), splits). Several splits of a plain product share its depth: out is (splits, m, N), parts
// that are still to be added. Their number is no constant: it differs from prompt to prompt, and each pipeline takes time to compile.

#extension GL_GOOGLE_include_directive : require
#ifndef EMULATED
#include "coopmat.glsl"
#endif
#ifdef QKV_EPILOGUE
#define BUFFERS 13
#define PUSH CoopmatQkvPush
#else
#define BUFFERS 5
#define PUSH CoopmatMatmulPush
#endif
#include "include/common.glsl"

layout(constant_id = 1) const uint N = 1024;
layout(constant_id = 2) const uint K = 1024;
layout(constant_id = 3) const uint GROUP = 64;
layout(constant_id = 4) const uint SCALED = 0;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F16;

#include "include/vec4.glsl"

#define ACROSS (COLUMNS == 192 ? 6 : 4) // subgroups beside each other
#define COLUMN_BLOCKS (COLUMNS / ACROSS / 16)
#define WORKERS (32 * ACROSS * ALONG)
#define ROW_BLOCKS (ROWS / 16)
#define EACH (DEEP / ALONG) // steps of a round that a subgroup takes
#define EIGHTS (8 * DEEP)   // uvec4 of a row of x and a round
#define X_LOADS ((ROWS * EIGHTS + WORKERS - 1) / WORKERS)
#define CODE_LOADS (WEIGHT_BITS / 4) // uvec4 a lane, column block and step
#define STRIDE (EIGHTS + 1)          // uvec4 from row to row of the tile of x: one more, so that rows lie in different banks
#define TILE (ROWS * STRIDE)
#if defined(QKV_EPILOGUE) && ALONG == 1
#define SUM_BLOCKS 2 // blocks of 16 rows whose sums go through shared memory at once
#else
#define SUM_BLOCKS 1
#endif
#define SUM_STRIDE (COLUMNS / 4 + 1) // uvec4 from row to row of them
#define PATCHES (ALONG * SUM_BLOCKS * 16 * SUM_STRIDE)

#ifdef GATED
#define JOINED 2 // columns of w to one of out
#else
#define JOINED 1
#endif
const uint OUT_COLUMNS = N / JOINED;
const uint BLOCKS = (N + 127u) / 128u * 8u; // of 16 columns that w has in fragment order
const uint STEPS = (K + 63u) / 64u;
const uint ROUNDS = (STEPS + DEEP - 1u) / DEEP;
const uint GROUPS = STEPS * 64u / GROUP;

// NVIDIA's driver (580) gives a thread no more registers than let as many workgroups run at once as shared memory does.
// With less shared memory than this, 64 rows get 128 registers where they want 150, and take 10 to 20 % longer. With 16
// KB fewer workgroups run at once. That suits only rounds of two steps, whose x takes as much: they have 190 registers.
#define MIN_SHARED (ROWS < 64 ? 640 : 800) // uvec4
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
shared uvec4 tile[LARGER(LARGER(TILE, PATCHES), MIN_SHARED)];
#include "tiles.glsl"
MATRIX_SUM sums[ROW_BLOCKS * COLUMN_BLOCKS];
uvec4 x_next[X_LOADS], codes[COLUMN_BLOCKS * EACH * CODE_LOADS], codes_next[COLUMN_BLOCKS * EACH * CODE_LOADS];
// Two groups of a column block and step where GROUP is 32, and four where it is 16.
uvec2 scales_biases[4 * COLUMN_BLOCKS * EACH], scales_biases_next[4 * COLUMN_BLOCKS * EACH];
// Where the first of them is: where GROUP is 128, two steps share one.
#define SCALES_BIASES(part) (GROUP == 128 && EACH % 2 == 0 ? (part) / 2 * 8 : (part) * 4)
uint row0, column0, column_block, across, along;
#if ALONG == 1
#define FIRST_STEP 0 // of a round
#else
#define FIRST_STEP (along * EACH)
#endif
// Bytes from what all threads share to a thread's own: the loop adds to the former only, which costs no vector instruction.
uint x_place[X_LOADS], codes_place, scales_biases_place;

void find_places() {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS;
        x_place[i] = min(f / EIGHTS, pc.p.m - 1 - row0) * (K * 2) + f % EIGHTS * 16;
    }
    codes_place = (column_block * (STEPS * CODE_LOADS) * 32 + lane()) * 16;
    scales_biases_place = (column_block * GROUPS * 8 + lane() / 4) * 8;
}

void load_x(uint round) {
    uint64_t rows = pc.address[0] + uint64_t(row0) * (K * 2) + round * (EIGHTS * 16);
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint eight = (gl_LocalInvocationIndex + i * WORKERS) % EIGHTS;
        x_next[i] = K % (64 * DEEP) == 0 || round * EIGHTS + eight < K / 8 ? U32x4s(rows + x_place[i]).v[0] : uvec4(0);
    }
}

void store_x() {
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uint f = gl_LocalInvocationIndex + i * WORKERS;
        if (ROWS * EIGHTS % WORKERS == 0 || f < ROWS * EIGHTS) tile[f / EIGHTS * STRIDE + f % EIGHTS] = x_next[i];
    }
}

void load_w(uint round) {
    [[unroll]] for (uint part = 0; part < COLUMN_BLOCKS * EACH; part++) {
        // Past the end x is 0.
        uint block = part / EACH, step = round * DEEP + FIRST_STEP + part % EACH;
        if (STEPS % DEEP != 0) step = min(step, STEPS - 1);
        uint64_t at = pc.address[2] + step * (CODE_LOADS * 512), group = pc.address[3] + step * 64 / GROUP * 64;
        [[unroll]] for (uint h = 0; h < CODE_LOADS; h++) {
            codes_next[part * CODE_LOADS + h] = U32x4s(at + (codes_place + (block * STEPS * CODE_LOADS + h) * 512)).v[0];
        }
        if (SCALES_BIASES(part) != part * 4) continue;
        scales_biases_next[part * 4] = U32x2s(group + (scales_biases_place + block * GROUPS * 64)).v[0];
        [[unroll]] for (uint g = 1; g < 4; g++)
            if (g < 64 / GROUP)
                scales_biases_next[part * 4 + g] = U32x2s(group + (scales_biases_place + block * GROUPS * 64 + g * 64)).v[0];
    }
}

void use_w() {
    codes = codes_next;
    scales_biases = scales_biases_next;
}

// The lane's part of matrix `depth` < 4 of a column block and step.
MATRIX_B weights(uint part, uint depth) {
    uvec2 pair = scales_biases[GROUP <= 32 ? part * 4 + depth * 16 / GROUP : SCALES_BIASES(part)];
    PAIR s = pair_of(pair.x), t = pair_of(pair.y), p[4];
#if WEIGHT_BITS == 4
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
        PAIR first = fma(p[i], s.xx, s.yy), second = fma(p[i + 2], t.xx, t.yy);
        SET_PAIR(b, i, first);
        SET_PAIR(b, i + 2, second);
    }
    return b;
}

void multiply() {
    uint place = along * EACH * 8;
    [[unroll]] for (uint depth = 0; depth < 4 * EACH; depth++) {
        MATRIX_A a[ROW_BLOCKS];
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
            LOAD_A(a[i], place + i * 16 * STRIDE + depth * 2, STRIDE);
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
            MATRIX_B b = weights(j * EACH + depth / 4, depth % 4);
            [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++)
                sums[i * COLUMN_BLOCKS + j] = MULTIPLY(a[i], b, sums[i * COLUMN_BLOCKS + j]);
        }
    }
}

// Sums of SUM_BLOCKS blocks of rows from block `first` on go to shared memory, of each of ALONG subgroups by themselves.
void store_sums(uint first) {
    [[unroll]] for (uint i = 0; i < SUM_BLOCKS; i++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
            uint place = (along * SUM_BLOCKS + i) * 16 * SUM_STRIDE + (across * COLUMN_BLOCKS + j) * 4;
            STORE_SUM(sums[(first + i) * COLUMN_BLOCKS + j], place, SUM_STRIDE);
        }
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
    [[unroll]] for (uint i = 1; i < ALONG; i++)
        sum += uintBitsToFloat(tile[(i * SUM_BLOCKS * 16 + row) * SUM_STRIDE + quad]);
    return sum;
}

#ifdef GATED
#include "gated_epilogue.glsl"
#endif

#ifdef QKV_EPILOGUE
#include "qkv_epilogue.glsl"
#else
// Whole tiles go from registers to memory.
void store_whole(uint64_t rows, uint column) {
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS / JOINED; j++)
            store_matrix(rows, sums[i * COLUMN_BLOCKS + j * JOINED], i * 16 * OUT_COLUMNS + column + j * 16, OUT_COLUMNS);
    }
}

// Edges, results without a matrix type, and sums that several subgroups have a share of go through shared memory, 16 rows at a time.
void store_shared(uint64_t rows, uint first_column) {
    const uint quads = COLUMNS / JOINED / 4;
    [[dont_unroll]] for (uint block = 0; block < ROW_BLOCKS; block++) {
        share_sums(block);
        for (uint f = gl_LocalInvocationIndex; f < 16 * quads; f += WORKERS) {
            uint r = f / quads, quad = f % quads, row = block * 16 + r, column = first_column + quad * 4;
            if (row0 + row >= pc.p.m || column >= OUT_COLUMNS) continue;
#ifdef GATED
            quad = quad / 4 * 8 + quad % 4;
            vec4 sum = gated(shared_sum(r, quad), shared_sum(r, quad + 4));
#else
            vec4 sum = shared_sum(r, quad);
#endif
            if (DTYPE_OUT == DTYPE_F16) sum = within_half(sum);
            if (OUT_COLUMNS % 4 == 0) store_quad(rows, (row * OUT_COLUMNS + column) / 4, DTYPE_OUT, sum);
            else
                for (uint i = 0; i < 4 && column + i < OUT_COLUMNS; i++)
                    store_float(rows, row * OUT_COLUMNS + column + i, DTYPE_OUT, sum[i]);
        }
    }
}
#endif

void main() {
    uint split = gl_WorkGroupID.z;
    across = warp() % ACROSS;
    along = warp() / ACROSS;
    row0 = gl_WorkGroupID.x * ROWS;
    column0 = gl_WorkGroupID.y * COLUMNS;
    column_block = column0 / 16 + across * COLUMN_BLOCKS;
    if (COLUMNS > 128) column_block = min(column_block, BLOCKS - COLUMN_BLOCKS); // w is padded to 128 columns
    find_places();
    find_bases((pc.p.m + gl_LocalInvocationIndex) >> 31);
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; i++)
        sums[i] = NO_SUM;

#if defined(GATED) || defined(QKV_EPILOGUE)
    uint round = 0, end = ROUNDS;
#else
    uint splits = gl_NumWorkGroups.z, round = ROUNDS * split / splits, end = ROUNDS * (split + 1) / splits;
#endif
    load_x(round);
    load_w(round);
    [[dont_unroll]] for (; round < end; round++) {
        store_x();
        use_w();
        barrier();
        // The last round loads unused values: a branch around it, or a round after the loop, takes longer.
        uint after = min(round + 1, end - 1);
        load_x(after);
        load_w(after);
        multiply();
        barrier();
    }

    if (SCALED != 0) {
        [[unroll]] for (uint i = 0; i < ROW_BLOCKS; i++) {
            float power = F32s(pc.address[1]).v[min(row0 / 16 + i, (pc.p.m - 1) / 16)];
            [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++)
                SCALE_SUM(sums[i * COLUMN_BLOCKS + j], power);
        }
    }
#ifdef QKV_EPILOGUE
    qkv_epilogue();
#else
    uint column = column0 / JOINED;
    uint64_t rows = pc.address[4] + (uint64_t(split) * pc.p.m + row0) * (OUT_COLUMNS * DTYPE_BYTES(DTYPE_OUT));
    bool whole = row0 + ROWS <= pc.p.m && column0 + COLUMNS <= N && OUT_COLUMNS % 8 == 0;
    if (ALONG == 1 && whole && DTYPE_OUT != DTYPE_BF16) {
#ifdef GATED
        gate();
#endif
        store_whole(rows, column + across * (16 * COLUMN_BLOCKS / JOINED));
    } else store_shared(rows, column);
#endif
}
