// Products of 16 columns of weights with 8 rows of values, over tiles.glsl or what is like it. A lane's elements come as words of two float16:
// 0 1, 2 3, 4 5, 6 7. Of weights the first two words are of columns 0 to 7 and the others of columns 8 to 15.
//
// Weights stand as A: what their fragments hold of B is the same of its transpose. Rows are a B of 8 columns, which takes half the work of one
// of 16. Of a sum a lane has column r of rows 2c and 2c + 1, and column r + 8 of the same.

#ifdef EMULATED
#define BLOCK_SUM float[4]
#define NO_BLOCK_SUM float[4](0.0, 0.0, 0.0, 0.0)

BLOCK_SUM multiply_block(uvec4 weights, uvec2 rows, BLOCK_SUM sum) {
    uint first = warp() * 64u;
    barrier();
    factors[first + lane()] = weights;
    factors[first + 32u + lane()].xy = rows;
    barrier();
    [[dont_unroll]] for (uint q = 0; q < 8u; q++) {
        uvec4 w = factors[first + lane_row() * 4u + (q & 3u)];
        vec2 x = unpackHalf2x16(w[q >> 2]), x8 = unpackHalf2x16(w[2u + (q >> 2)]);
        [[unroll]] for (uint e = 0; e < 2u; e++) {
            vec2 y = unpackHalf2x16(factors[first + 32u + (2u * lane_column() + e) * 4u + (q & 3u)][q >> 2]);
            sum[e] += dot(x, y);
            sum[2u + e] += dot(x8, y);
        }
    }
    return sum;
}
#else
#define NARROW_B coopmat<float16_t, gl_ScopeSubgroup, 16, 8, gl_MatrixUseB>
#define BLOCK_SUM coopmat<float, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator>
#define NO_BLOCK_SUM BLOCK_SUM(0.0)

MATRIX_A matrix_a(uvec4 words) {
    MATRIX_A m;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        PAIR x = pair_of(words[i]);
        m[2u * i] = x.x;
        m[2u * i + 1u] = x.y;
    }
    return m;
}

BLOCK_SUM multiply_block(uvec4 weights, uvec2 rows, BLOCK_SUM sum) {
    NARROW_B n;
    [[unroll]] for (uint i = 0; i < 2u; i++) {
        PAIR y = pair_of(rows[i]);
        n[2u * i] = y.x;
        n[2u * i + 1u] = y.y;
    }
    return coopMatMulAdd(matrix_a(weights), n, sum);
}
#endif
