// Products of 16x16 matrices in a warp. A lane's elements come as words of two float16: 0 1, 2 3, 4 5, 6 7; of A the first two words are
// of rows 0 to 7 and the others of rows 8 to 15. Without MATRICES the same products go through shared memory, for tests.

#ifdef MATRICES
#include "coopmat/half_codes.glsl"
#define SUM MATRIX_SUM
SUM no_sum() { return MATRIX_SUM(0.0); }

SUM multiply(uvec4 a, uvec4 b, SUM sum) {
    MATRIX_A m;
    MATRIX_B n;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        f16vec2 x = unpackFloat2x16(a[i]), y = unpackFloat2x16(b[i]);
        m[2u * i] = x.x;
        m[2u * i + 1u] = x.y;
        n[2u * i] = y.x;
        n[2u * i + 1u] = y.y;
    }
    return coopMatMulAdd(m, n, sum);
}

uint fma_low(uint u, f16vec2 s) { return packFloat2x16(fma(low_nibbles(u), s.xx, s.yy)); }
uint fma_high(uint u, f16vec2 s) { return packFloat2x16(fma(high_nibbles(u), s.xx, s.yy)); }
#define SCALES_BIASES(w) unpackFloat2x16(w)
#else
#define SUM float[8]
void find_bases(uint zero) {}
SUM no_sum() { return float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0); }

shared uvec4 factors[WARPS * 64u];

SUM multiply(uvec4 a, uvec4 b, SUM sum) {
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

uint fma_low(uint u, vec2 s) { return half_pair(fma(vec2(u & 15u, u >> 16 & 15u), s.xx, s.yy)); }
uint fma_high(uint u, vec2 s) { return fma_low(u >> 4, s); }
#define SCALES_BIASES(w) unpackHalf2x16(w)
#endif

// ---- weights, as coopmat/repack.comp lays them -----------------------------------------------------------------------------

// A lane's codes of four matrices and its scales and biases: a step of 64 along the depth of a block of 16 columns.
struct Step {
    uvec4 codes, scales_biases;
};

Step load_step(uint64_t codes, uint64_t scales_biases, uint steps, uint block, uint step) {
    Step w;
    step = min(step, steps - 1u);
    w.codes = Weights4(codes + ((block * steps + step) * 32u + lane()) * 16u).v[0];
    uint64_t group = scales_biases + ((block * (steps * 64u / GROUP) + step * 64u / GROUP) * 32u + lane()) * 8u;
    w.scales_biases.xy = Weights2(group).v[0];
    w.scales_biases.zw = GROUP == 32u ? Weights2(group + 256u).v[0] : w.scales_biases.xy;
    return w;
}

uvec4 weights(Step w, uint m) {
    uvec2 scales_biases = m < 2u ? w.scales_biases.xy : w.scales_biases.zw;
    uint u = w.codes[m];
    return uvec4(fma_low(u, SCALES_BIASES(scales_biases.x)), fma_high(u, SCALES_BIASES(scales_biases.x)),
                 fma_low(u >> 8, SCALES_BIASES(scales_biases.y)), fma_high(u >> 8, SCALES_BIASES(scales_biases.y)));
}
