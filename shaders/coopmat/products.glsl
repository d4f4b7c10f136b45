// Products in a warp: of two 16x16 matrices, and of 16 columns of weights with 8 rows of values. A lane's elements come
// as words of two float16: 0 1, 2 3, 4 5, 6 7. Of A the first two words are of rows 0 to 7 and the others of rows 8 to
// 15.
// Of blocks see narrow.glsl.

#define SUM MATRIX_SUM
SUM no_sum() { return NO_SUM; }

#include "coopmat/narrow.glsl"

#ifndef EMULATED
SUM multiply(uvec4 a, uvec4 b, SUM sum) {
    MATRIX_B n;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        PAIR y = pair_of(b[i]);
        n[2u * i] = y.x;
        n[2u * i + 1u] = y.y;
    }
    return coopMatMulAdd(matrix_a(a), n, sum);
}
#endif
