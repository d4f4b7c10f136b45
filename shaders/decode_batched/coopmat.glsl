// Dequantized weights of the products of a warp.

#include "coopmat/products.glsl"

// Columns r and r + 8 of two rows.
BLOCK_SUM no_block_sum() { return NO_BLOCK_SUM; }
vec4 four_of(BLOCK_SUM sum) { return vec4(sum[0], sum[1], sum[2], sum[3]); }

uint fma_low(uint u, PAIR s) { return word_of(fma(low_nibbles(u), s.xx, s.yy)); }
uint fma_bytes(uint u, PAIR s) { return word_of(fma(bytes(u), s.xx, s.yy)); }
uint fma_high(uint u, PAIR s) { return word_of(fma(high_nibbles(u), s.xx, s.yy)); }

// ---- weights, as coopmat/repack.comp lays them -----------------------------------------------------------------------------

// Scales and biases of a step: two groups if they are short.
const uint STEP_GROUPS = GROUP == 32u ? 2u : 1u;

// A lane's codes of four matrices: a step of 64 along the depth of a block of 16 columns. Codes of 4 bits take one
// load, those of 8 bits two. Dense weights lie as rows: a lane takes 16 neighbouring ones of two rows in four loads.
// Their order along the depth is that of the values (word_at).
const uint CODE_LOADS = BITS / 4u;
uvec4 load_codes(uint64_t codes, uint steps, uint block, uint step, uint load) {
    return Weights4(codes).v[((block * steps + step) * CODE_LOADS + load) * 32u + lane()];
}
uvec4 load_dense(uint64_t rows, uint steps, uint step, uint row, uint load) {
    return Weights4(rows).v[(row * steps + step) * 8u + lane_column() * 2u + load % 2u];
}
uvec2 load_scales_biases(uint64_t scales_biases, uint steps, uint block, uint step, uint group) {
    uint at = block * (steps * 64u / GROUP) + step * 64u / GROUP + group;
    return Weights2(scales_biases + (at * 8u + lane_row()) * 8u).v[0];
}

// Weights of matrix m of a step, from the load that has its codes, number load_of(m), and for dense ones that of the other row.
uint load_of(uint m) { return m / 2u % CODE_LOADS; }
uint other_load_of(uint m) { return (load_of(m) + CODE_LOADS / 2u) % CODE_LOADS; }
uint half_word(uint w) { return DTYPE_W == DTYPE_F16 ? w : half_pair(pair_value(w, DTYPE_W)); }
uvec4 weights(uvec4 codes, uvec4 other_codes, uint m, uvec2 scales_biases) {
    PAIR first = pair_of(scales_biases.x), second = pair_of(scales_biases.y);
    uvec4 w;
    if (BITS == 16u) {
        uvec2 u = m % 2u == 0u ? codes.xy : codes.zw, v = m % 2u == 0u ? other_codes.xy : other_codes.zw;
        w = uvec4(half_word(u.x), half_word(u.y), half_word(v.x), half_word(v.y));
    } else if (BITS == 8u) {
        uvec2 u = m % 2u == 0u ? codes.xy : codes.zw;
        w = uvec4(fma_bytes(u.x, first), fma_bytes(u.x >> 8, first), fma_bytes(u.y, second), fma_bytes(u.y >> 8, second));
    } else {
        uint u = codes[m];
        w = uvec4(fma_low(u, first), fma_high(u, first), fma_low(u >> 8, second), fma_high(u >> 8, second));
    }
    return w;
}
