// Products of 16x16 matrices in a warp. A lane's elements come as words of two float16: 0 1, 2 3, 4 5, 6 7; of A the first two words are
// of rows 0 to 7 and the others of rows 8 to 15.

#define SUM MATRIX_SUM
SUM no_sum() { return NO_SUM; }

#ifndef EMULATED
SUM multiply(uvec4 a, uvec4 b, SUM sum) {
    MATRIX_A m;
    MATRIX_B n;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        PAIR x = pair_of(a[i]), y = pair_of(b[i]);
        m[2u * i] = x.x;
        m[2u * i + 1u] = x.y;
        n[2u * i] = y.x;
        n[2u * i + 1u] = y.y;
    }
    return coopMatMulAdd(m, n, sum);
}
#endif

uint fma_low(uint u, PAIR s) { return word_of(fma(low_nibbles(u), s.xx, s.yy)); }
uint fma_high(uint u, PAIR s) { return word_of(fma(high_nibbles(u), s.xx, s.yy)); }

// ---- weights, as coopmat/repack.comp lays them -----------------------------------------------------------------------------

// A lane's codes of four matrices and its scales and biases: a step of 64 along the depth of a block of 16 columns.
struct Step {
    uvec4 codes, scales_biases;
};

Step load_step(uint64_t codes, uint64_t scales_biases, uint steps, uint block, uint step) {
    Step w;
    if (steps % WARPS != 0u) step = min(step, steps - 1u); // else every warp has as many
    w.codes = Weights4(codes + ((block * steps + step) * 32u + lane()) * 16u).v[0];
    uint64_t group = scales_biases + ((block * (steps * 64u / GROUP) + step * 64u / GROUP) * 32u + lane()) * 8u;
    w.scales_biases.xy = Weights2(group).v[0];
    w.scales_biases.zw = GROUP == 32u ? Weights2(group + 256u).v[0] : w.scales_biases.xy;
    return w;
}

uvec4 weights(Step w, uint m) {
    uvec2 scales_biases = m < 2u ? w.scales_biases.xy : w.scales_biases.zw;
    uint u = w.codes[m];
    return uvec4(fma_low(u, pair_of(scales_biases.x)), fma_high(u, pair_of(scales_biases.x)), fma_low(u >> 8, pair_of(scales_biases.y)),
                 fma_high(u >> 8, pair_of(scales_biases.y)));
}
