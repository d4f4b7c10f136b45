// Keys and values in 8 bits, as src/graph/kv_codes.ts has them: a word of four features that share an exponent. shaders/include/kv_codes.glsl
// is the same of shaders.

#ifndef VKMX_WASM_KV_CODES_H
#define VKMX_WASM_KV_CODES_H
#include "simd.h"

INLINE uint32_t kv_encode(f4 x) {
    const u4 bits = (u4)x, all = bits & 0x7fffffffu, is_number = (u4)(all <= 0x7f800000u);
    // NaN is 0, and 2016 the largest.
    const u4 size = __builtin_elementwise_min(all, (u4){0x44fc0000u, 0x44fc0000u, 0x44fc0000u, 0x44fc0000u}) & is_number;
    const uint32_t most = __builtin_reduce_max(size);
    // The least exponent that holds the largest feature: 63.5 steps would be rounded to 64.
    const int32_t found = (int32_t)((most + 0x20000u) >> 23) - 122;
    const uint32_t exponent = found < 0 ? 0 : (uint32_t)found, steps = (137 - exponent) << 23; // of 1: 2^(10 - exponent)
    const float magic = 0x1p23f; // added to a positive number it rounds to an integer, which then is in the lowest bits
    const u4 m = (u4)((f4)size * (f4)(u4){steps, steps, steps, steps} + magic) & 127, sign = (u4)((i4)bits >> 31);
    const u4 code = ((m ^ sign) - sign) & 127;
    return code[0] | code[1] << 7 | code[2] << 14 | code[3] << 21 | exponent << 28;
}

INLINE f4 kv_decode(uint32_t word) {
    const uint32_t step = ((word >> 28) + 117) << 23; // 2^(exponent - 10)
    const i4 m = (i4)((u4){word, word, word, word} * (u4){1u << 25, 1u << 18, 1u << 11, 1u << 4}) >> 25;
    return __builtin_convertvector(m, f4) * (f4)(u4){step, step, step, step};
}

// A run of features, a multiple of 4.
INLINE void kv_decode_run(float *to, const uint8_t *from, size_t n) {
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word;
        __builtin_memcpy(&word, from + i, sizeof word);
        f4_store(to + i, kv_decode(word));
    }
}

#endif
