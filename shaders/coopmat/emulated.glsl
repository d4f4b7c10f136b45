// Products of 16x16 matrices without matrix units, for tests on devices that have none: the same factors and the same
// sums, slowly, through shared memory. A lane has 8 elements of each matrix in the order that
// src/schedule/ops/matmul/coopmat.ts names `pairs`. Of factors they come as words of two float16: 0 1, 2 3, 4 5, 6 7.
// All threads of a workgroup multiply together. The includer has WARPS, lane() and warp(), which are 32 neighbouring
// threads whatever the subgroup is.

#define MATRIX_A uvec4
#define MATRIX_B uvec4
#define MATRIX_SUM float[8]
#define NO_SUM float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

// Two float16 as numbers, from a word and to one.
#define PAIR vec2
PAIR pair_of(uint word) { return unpackHalf2x16(word); }
uint word_of(PAIR x) { return f16_bits(x.x) | f16_bits(x.y) << 16; }

void find_bases(uint zero) {}
PAIR low_nibbles(uint u) { return vec2(u & 15u, u >> 16 & 15u); }
PAIR high_nibbles(uint u) { return low_nibbles(u >> 4); }
PAIR bytes(uint u) { return vec2(u & 255u, u >> 16 & 255u); }

uint lane_row() { return lane() >> 2; } // and the row 8 below it: of A and of sums; columns of B
uint lane_column() { return lane() & 3u; }
// Column i of the four that a lane has.
uint column_of(uint a_lane, uint i) { return 2u * (a_lane & 3u) + (i & 1u) + 8u * (i >> 1); }

shared uvec4 factors[WARPS * 64u];

MATRIX_SUM multiply(MATRIX_A a, MATRIX_B b, MATRIX_SUM sum) {
    uint first = warp() * 64u;
    barrier();
    factors[first + lane()] = a;
    factors[first + 32u + lane()] = b;
    barrier();
    // Few iterations: software devices count those of all loops.
    [[dont_unroll]] for (uint q = 0; q < 8u; q++) {
        uvec4 row = factors[first + lane_row() * 4u + (q & 3u)];
        vec2 x = unpackHalf2x16(row[q >> 2]), x8 = unpackHalf2x16(row[2u + (q >> 2)]);
        [[unroll]] for (uint e = 0; e < 4u; e++) {
            uint column = column_of(lane(), e);
            vec2 y = unpackHalf2x16(factors[first + 32u + (column & 7u) * 4u + (q & 3u)][2u * (column >> 3) + (q >> 2)]);
            sum[e] += dot(x, y);
            sum[4u + e] += dot(x8, y);
        }
    }
    return sum;
}
