#version 460
// coopmat_experts_direct, coopmat_experts_gated: the products of experts_direct.comp for tiles of 8 or 16 rows, in 16x8x16 matrices.
//
// Reading the codes takes the time here. A workgroup makes a tile of ROWS rows of one expert times COLUMNS columns, each of SUBGROUPS
// subgroups 32 of them. A subgroup goes along the depth by itself, 128 a step: no barrier makes it wait. A lane loads the codes that it
// multiplies, two steps before it does, and x of a row from caches. Codes stand as A and rows as B of eight columns.
//
// Few workgroups run at once if each takes more shared memory: scales that lie there take longer than scales from caches.
//
// n is a multiple of 16, k of 32. THREADS must be 32 * SUBGROUPS. Workgroups: (tiles, ceil(n * matrices / COLUMNS)), or experts in the place
// of tiles where CHOSEN is not 0.

#extension GL_GOOGLE_include_directive : require
#ifndef EMULATED
#include "coopmat.glsl"
#endif
#define BUFFERS 13
#define PUSH SortedExpertsPush
#include "include/common.glsl"

#define WORKERS (32 * SUBGROUPS)
#define COLUMNS (32 * SUBGROUPS)
#define COLUMN_BLOCKS 2  // of a subgroup
#define SIDES 4          // columns of a lane
#define PARTS (ROWS / 8) // of rows
#define CODE_LOADS (WEIGHT_BITS / 4)
#define AHEAD (8 / WEIGHT_BITS) // steps of codes that are on their way
#define SUM_STRIDE (COLUMNS / 4 + 1)
#define FEW_ROWS
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SHARED LARGER(ROWS *SUM_STRIDE, MIN_SHARED)
#include "sorted_experts.glsl"
#include "narrow.glsl"

BLOCK_SUM sums[PARTS * COLUMN_BLOCKS];
uvec4 x[PARTS * 4];
uvec4 codes[AHEAD * SIDES * CODE_LOADS];
uvec2 scales[AHEAD * SIDES];
uint64_t x_rows[PARTS];

void find_rows() {
    [[unroll]] for (uint part = 0; part < PARTS; part++) {
        uint row = part * 8 + lane() / 4;
        x_rows[part] = pc.address[0] + uint64_t(x_row_of(left_of(min(row, rows - 1)))) * (K * 2);
    }
}

void load_w(uint step, uint slot) {
    uint depth = depth_of(step);
    [[unroll]] for (uint side = 0; side < SIDES; side++) {
        [[unroll]] for (uint i = 0; i < CODE_LOADS; i++)
            codes[(slot * SIDES + side) * CODE_LOADS + i] = U32x4s(codes_of(side, depth) + i * 16).v[0];
        scales[slot * SIDES + side] = scale_of(side, depth);
    }
}

// Eight numbers of each row, number `eight` of four. Past the end they are 0. Rows that a tile lacks are its last one.
void load_x(uint step, uint eight) {
    bool inside = K % (128 * AHEAD) == 0 || step * 128 + lane() % 4 * 32 < K;
    [[unroll]] for (uint part = 0; part < PARTS; part++)
        x[part * 4 + eight] = inside ? U32x4s(x_rows[part] + depth_of(step) * 2 + eight * 16).v[0] : uvec4(0);
}

void multiply(uint step, uint slot) {
    uint pairs[SIDES];
    [[unroll]] for (uint side = 0; side < SIDES; side++)
        pairs[side] = pair_of_scales(scales[slot * SIDES + side]);
    [[unroll]] for (uint eight = 0; eight < 4; eight++) {
        [[unroll]] for (uint h = 0; h < 2; h++) {
            uvec2 b[PARTS];
            [[unroll]] for (uint part = 0; part < PARTS; part++)
                b[part] = uvec2(x_pair(x[part * 4 + eight], 2 * h), x_pair(x[part * 4 + eight], 2 * h + 1));
            [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++) {
                uvec4 a;
                [[unroll]] for (uint q = 0; q < 4; q++) {
                    uint side = 2 * j + q / 2, word = WEIGHT_BITS == 4 ? eight : 2 * eight + h;
                    uint own = codes[(slot * SIDES + side) * CODE_LOADS + word / 4][word % 4];
                    a[q] = word_of(pair_of_codes(own, h, q % 2, pairs[side]));
                }
                [[unroll]] for (uint part = 0; part < PARTS; part++)
                    sums[part * COLUMN_BLOCKS + j] = multiply_block(a, b[part], sums[part * COLUMN_BLOCKS + j]);
            }
        }
        load_x(step + 1, eight);
    }
}

#ifdef EMULATED
#define STORE_BLOCK store_block
void store_block(BLOCK_SUM sum, uint at, uint stride) {
    [[unroll]] for (uint e = 0; e < 4; e++)
        tile[at + (2 * lane_column() + e % 2) * stride + (lane_row() + e / 2 * 8) / 4][lane_row() % 4] = floatBitsToUint(sum[e]);
}
#else
#define STORE_BLOCK(sum, at, stride) coopMatStore(sum, tile, at, stride, COLUMN_MAJOR)
#endif

void main() {
    if (!find_tile()) return;
    find_columns();
    find_bases((pc.p.x_rows + gl_LocalInvocationIndex) >> 31);
    [[unroll]] for (uint slot = 0; slot < AHEAD; slot++)
        load_w(slot, slot);
    find_rows();
    [[unroll]] for (uint eight = 0; eight < 4; eight++)
        load_x(0, eight);
    [[unroll]] for (uint i = 0; i < PARTS * COLUMN_BLOCKS; i++)
        sums[i] = NO_BLOCK_SUM;
    // Steps past the end multiply zeros.
    [[dont_unroll]] for (uint step = 0; step < RUNS; step += AHEAD) {
        [[unroll]] for (uint slot = 0; slot < AHEAD; slot++) {
            multiply(step + slot, slot);
            load_w(step + slot + AHEAD, slot);
        }
    }
    [[unroll]] for (uint part = 0; part < PARTS; part++) {
        [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; j++)
            STORE_BLOCK(sums[part * COLUMN_BLOCKS + j], part * 8 * SUM_STRIDE + (warp() * COLUMN_BLOCKS + j) * 4, SUM_STRIDE);
    }
    barrier();
    store_rows(0, ROWS);
}
