// Keys and values in 8 bits, as src/graph/kv_codes.ts has them: a word of four features that share an exponent. Caches of them have
// DTYPE_KV DTYPE_U8.

uint kv_encode(vec4 x) {
    uvec4 bits = floatBitsToUint(x), size = bits & 0x7fffffffu;
    [[unroll]] for (uint i = 0; i < 4u; i++)
        size[i] = size[i] > 0x7f800000u ? 0u : min(size[i], 0x44fc0000u); // NaN is 0, and 2016 the largest
    uint most = max(max(size.x, size.y), max(size.z, size.w));
    // The least exponent that holds the largest feature: 63.5 steps would be rounded to 64.
    uint exponent = uint(max(int((most + 0x20000u) >> 23) - 122, 0));
    float steps = uintBitsToFloat((137u - exponent) << 23); // of 1: 2^(10 - exponent)
    uvec4 m = uvec4(roundEven(uintBitsToFloat(size) * steps));
    [[unroll]] for (uint i = 0; i < 4u; i++)
        m[i] = (int(bits[i]) < 0 ? -m[i] : m[i]) & 127u;
    return m.x | m.y << 7 | m.z << 14 | m.w << 21 | exponent << 28;
}

float kv_step(uint word) { return uintBitsToFloat(((word >> 28) + 117u) << 23); }
float kv_feature(uint word, uint i) { return float(bitfieldExtract(int(word), int(7u * i), 7)) * kv_step(word); }
vec4 kv_decode(uint word) {
    int w = int(word);
    return vec4(bitfieldExtract(w, 0, 7), bitfieldExtract(w, 7, 7), bitfieldExtract(w, 14, 7), bitfieldExtract(w, 21, 7)) * kv_step(word);
}

// As two words of two float16, where the includer has PAIR of half_codes.glsl. A feature's bits, the upper one turned around, are in the
// lowest ones of 1024 + 64 + m.
#ifdef PAIR
PAIR kv_pair(uint bits, uint exponent) {
    return (pair_of(bits ^ 0x64406440u) - PAIR(1088.0)) * pair_of(exponent * 0x04000400u + 0x14001400u); // 2^(exponent - 10)
}
uvec2 kv_halves(uint word) {
    uint exponent = word >> 28;
    return uvec2(word_of(kv_pair((word & 0x7fu) | (word << 9 & 0x7f0000u), exponent)),
                 word_of(kv_pair((word >> 14 & 0x7fu) | (word >> 5 & 0x7f0000u), exponent)));
}
#endif
