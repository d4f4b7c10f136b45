// 16x16 matrices between the shared memory `tile`, memory and a product: on matrix units, or EMULATED in the same order of elements.

#ifdef EMULATED
const uint WARPS = THREADS / 32;
uint lane() { return gl_LocalInvocationIndex & 31; }
uint warp() { return gl_LocalInvocationIndex >> 5; }
#include "emulated.glsl"

#define SET_PAIR(factor, i, pair) factor[i] = word_of(pair)
#define MULTIPLY multiply
#define SCALE_SUM(sum, by) \
    [[unroll]] for (uint e = 0; e < 8; e++) \
    sum[e] *= by

#define LOAD_A(a, at, stride) a = load_a(at, stride)
MATRIX_A load_a(uint at, uint stride) {
    uint first = at + lane_row() * stride, second = first + 8 * stride, word = lane_column();
    return uvec4(tile[first][word], tile[first + 1][word], tile[second][word], tile[second + 1][word]);
}

// Shared memory has columns of B as it has rows of A.
#define LOAD_B LOAD_A

#define STORE_SUM store_sum
void store_sum(MATRIX_SUM sum, uint at, uint stride) {
    [[unroll]] for (uint e = 0; e < 8; e++) {
        uint row = lane_row() + e / 4 * 8, column = column_of(lane(), e % 4);
        tile[at + row * stride + column / 4][column % 4] = floatBitsToUint(sum[e]);
    }
}

void store_matrix(uint64_t to, MATRIX_SUM sum, uint at, uint columns) {
    [[unroll]] for (uint e = 0; e < 8; e++) {
        uint row = lane_row() + e / 4 * 8, column = column_of(lane(), e % 4);
        store_float(to, at + row * columns + column, DTYPE_OUT, DTYPE_OUT == DTYPE_F16 ? within_half(sum[e]) : sum[e]);
    }
}
#else
#include "half_codes.glsl"
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F16Rows { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F32Rows { float v[]; };

uint lane() { return gl_SubgroupInvocationID; }
uint warp() { return gl_SubgroupID; }

#define SET_PAIR(factor, i, pair) \
    factor[2 * (i)] = pair.x; \
    factor[2 * (i) + 1] = pair.y
#define MULTIPLY(a, b, sum) coopMatMulAdd(a, b, sum)
#define SCALE_SUM(sum, by) sum *= by
#define LOAD_A(a, at, stride) coopMatLoad(a, tile, at, stride, ROW_MAJOR)
#define LOAD_B(b, at, stride) coopMatLoad(b, tile, at, stride, COLUMN_MAJOR)
#define STORE_SUM(sum, at, stride) coopMatStore(sum, tile, at, stride, ROW_MAJOR)

MATRIX_SUM_F16 half_sums(MATRIX_SUM x) {
    [[unroll]] for (uint e = 0; e < x.length(); e++)
        x[e] = within_half(x[e]);
    return MATRIX_SUM_F16(x);
}

void store_matrix(uint64_t to, MATRIX_SUM sum, uint at, uint columns) {
    if (DTYPE_OUT == DTYPE_F32) coopMatStore(sum, F32Rows(to).v, at, columns, ROW_MAJOR);
    else coopMatStore(half_sums(sum), F16Rows(to).v, at, columns, ROW_MAJOR);
}
#endif
