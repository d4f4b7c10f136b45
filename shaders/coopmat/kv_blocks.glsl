// Blocks of 16 positions of a cache as factors of matrix products: keys of scores, and values of outputs. A sequence's rows are its query heads.
//
// Position c + 4i of a block stands where a lane of column c has its element i, of scores as well as of weights. So
// what leaves one product enters the next one. A lane of keys has four neighbouring features of the cache's blocks. A
// lane of values has eight features of its four positions. Four features have two words, or one word of codes and an
// unused one.
//
// The includer has HEAD_DIM, FOURS, EIGHTS, DTYPE_KV, SHARE_EIGHTS, first_eight, place_of(page, position), cached_key(four, place) and
// cached_value(eight, place), and products.glsl.

const uint KEY_STEPS = HEAD_DIM / 16u, VALUE_STEPS = SHARE_EIGHTS / 2u;
const float NOTHING = -1e30;

struct Keys {
    uvec2 first[KEY_STEPS], second[KEY_STEPS];
};
struct Values {
    uvec4 v[VALUE_STEPS];
};

// Positions of columns r and r + 8 of a block of keys: the second is 8 after the first.
uint key_position(uint base) { return base + (lane_row() >> 1) + 4u * (lane_row() & 1u); }

const bool CODED = DTYPE_KV == DTYPE_U8;

uint halves(uint w) { return DTYPE_KV == DTYPE_BF16 ? half_pair(pair_value(w, DTYPE_KV)) : w; }
uvec2 halves(uvec2 four) { return CODED ? kv_halves(four.x) : uvec2(halves(four.x), halves(four.y)); }
// Neighbouring features of a position: four or eight. Those of 32 bits become float16 at once.
uvec2 cached_four(uint64_t at) {
    if (CODED) return uvec2(Weights1(at).v[0], 0u);
    if (DTYPE_KV == DTYPE_F32) return half_four(uintBitsToFloat(Weights4(at).v[0]));
    return Weights2(at).v[0];
}
uvec4 cached_eight(uint64_t at) {
    if (CODED) {
        uvec2 words = Weights2(at).v[0];
        return uvec4(words.x, 0u, words.y, 0u);
    }
    if (DTYPE_KV == DTYPE_F32) return uvec4(cached_four(at), cached_four(at + 16u));
    return Weights4(at).v[0];
}
// Positions from `end` on are not in the cache yet: any row does for them.
void load_keys(uint page, uint base, uint end, inout Keys k) {
    uint p = key_position(base), q = min(p + 8u, end);
    p = min(p, end);
    [[unroll]] for (uint m = 0; m < KEY_STEPS; m++) {
        k.first[m] = cached_four(cached_key(4u * m + lane_column(), place_of(page, p)));
        k.second[m] = cached_four(cached_key(4u * m + lane_column(), place_of(page, q)));
    }
}

void load_values(uint page, uint base, uint end, inout Values v) {
    [[unroll]] for (uint i = 0; i < VALUE_STEPS; i++) {
        uint eight = min(first_eight + i / 4u * 8u + lane_row(), EIGHTS - 1u);
        v.v[i] = cached_eight(cached_value(eight, place_of(page, min(base + lane_column() + 4u * (i % 4u), end))));
    }
}

// Feature 2j of the eights of four positions in columns 0 to 7, feature 2j + 1 in the others.
uvec4 values_of(inout Values v, uint part, uint j) {
    uint w[4];
    [[unroll]] for (uint i = 0; i < 4u; i++)
        w[i] = CODED ? kv_halves(v.v[part * 4u + i][j & 2u])[j & 1u] : halves(v.v[part * 4u + i][j]);
    return uvec4(w[0] & 0xffffu | w[1] << 16, w[2] & 0xffffu | w[3] << 16, w[0] >> 16 | w[1] & 0xffff0000u,
                 w[2] >> 16 | w[3] & 0xffff0000u);
}
