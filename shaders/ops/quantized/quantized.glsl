// Affine quantized rows as MLX stores them. Each row is a little-endian bitstream of codes, lowest bits first, with one
// scale and one bias per group. Vec8 codes fill BITS bytes and lie within two neighbouring words of any 32 codes (BITS
// words).
//
// Multiplying shaders use code_value(n) = 1 + n / 2^BITS, which costs no integer to float conversion: the code goes
// straight into the mantissa. Then scale * code + bias = code_scale * code_value + code_bias.

const uint CODE_MASK = (1u << BITS) - 1u;

float code_value(uint code) { return uintBitsToFloat(0x3f800000u | code << (23u - BITS)); }
float code_scale(float scale) { return scale * float(1u << BITS); }
float code_bias(float scale, float bias) { return bias - code_scale(scale); }

// The one or two words that hold codes 8 * part .. 8 * part + 7 of the 32 that start at `words`.
uvec2 words8(uint64_t words, uint part) {
    uint bit = part * 8u * BITS, word = bit / 32u;
    if (bit % 32u + 8u * BITS <= 32u) return uvec2(U32s(words).v[word], 0);
    return uvec2(U32s(words).v[word], U32s(words).v[word + 1u]);
}

// How far those codes lie from the lowest bit, and they as 8 * BITS bits. A shift is 0 if codes fill whole words.
uint shift8(uint part) { return BITS % 4u == 0u ? 0u : part * 8u * BITS % 32u; }
uvec2 shifted8(uvec2 words, uint shift) {
    if (BITS % 4u == 0u) return words;
    return shift == 0u ? words : uvec2(words.x >> shift | words.y << (32u - shift), words.y >> shift);
}

uvec2 codes8(uint64_t words, uint part) { return shifted8(words8(words, part), shift8(part)); }

// Code i of those eight.
uint code_at(uvec2 codes, uint i) {
    uint bit = i * BITS;
    if (bit >= 32u) return codes.y >> (bit - 32u) & CODE_MASK;
    if (bit + BITS <= 32u) return codes.x >> bit & CODE_MASK;
    return (codes.x >> bit | codes.y << (32u - bit)) & CODE_MASK;
}
