// Codes of 32 features of a row times a chunk of activations.

#include "include/math/small_float.h"

// Eights of codes from `first` up to `last` times those of the chunk.
int eights_dot(Codes32 codes, Chunk c, const uint format, uint first, uint last) {
    int high = 0, low = 0;
    [[unroll]] for (uint i = first; i < last; i++) {
        uint half_ = i >> 1, at = 2u * (i & 1u);
        uvec4 words = half_ == 0u ? codes.first : codes.second;
        uvec2 bytes = CODE_BITS(format) == 8u ? code_bytes(words[at], words[at + 1u], format) : code_bytes(codes.first[i], 0u, format);
        high += dot4(bytes.x, c.high[half_][at], 0) + dot4(bytes.y, c.high[half_][at + 1u], 0);
        low += dot4(bytes.x, c.low[half_][at], 0) + dot4(bytes.y, c.low[half_][at + 1u], 0);
    }
    return high * 256 + low;
}

// 32 weights times the chunk, where some matrices have symmetric codes.
float symmetric_dot(Codes32 codes, uint scales_biases, Chunk c, const uint format, uint matrix) {
    int first = eights_dot(codes, c, format, 0u, 2u), second = eights_dot(codes, c, format, 2u, 4u);
    vec2 scales = scales_value(scales_biases, format);
    float x = fma(scales.x, float(first), scales.y * float(second)) * c.scale;
    if (SYMMETRIC(format) == 7u) return x;
    vec2 sb = scales_biases_value(scales_biases, format);
    return is_symmetric(format, matrix) ? x : fma(sb.x * c.scale, float(first + second), sb.y * c.sum);
}

// The bytes of scales of 32 small floats of row `row` of a run, whose words are from `first` on.
#define ROW_BYTES(words, first, row, format) \
    ((words)[(first) + (row) * SCALE_BYTES(format) / 4u] >> 8u * ((row) * SCALE_BYTES(format) % 4u) & \
     (SCALE_BYTES(format) == 1u ? 255u : 0xffffu))

// Eights of e2m1 codes from `first` up to `last` times those of the chunk: twice their sum. Twice the magnitudes are 0, 1, 2, 3, 4, 6, 8 and
// 12, so eight of them fit a word. Those of negative numbers are taken from 15, and the signs, 15 each, are multiplied by themselves. So
// half of the work is that of integer dot products, which other units do than shifts and logic.
int small_eights_dot(Codes32 codes, Chunk c, uint first, uint last) {
    int high = 0, low = 0, high_of_signs = 0, low_of_signs = 0;
    [[unroll]] for (uint i = first; i < last; i++) {
        uint half_ = i >> 1, at = 2u * (i & 1u), word = codes.first[i];
        uint above = (word >> 2 & 0x11111111u) * 3u & word; // the two low bits of codes from 4 on, which count twice and more
        uint sizes = (word & 0x77777777u) + above + (above & above * 2u & 0x22222222u);
        uint signs = (word >> 3 & 0x11111111u) * 15u, turned = sizes ^ signs;
        uvec2 bytes = uvec2(turned, turned >> 4) & 0x0f0f0f0fu, sign_bytes = uvec2(signs, signs >> 4) & 0x0f0f0f0fu;
        high += dot4(bytes.x, c.high[half_][at], 0);
        high += dot4(bytes.y, c.high[half_][at + 1u], 0);
        low += dot4(bytes.x, c.low[half_][at], 0);
        low += dot4(bytes.y, c.low[half_][at + 1u], 0);
        high_of_signs += dot4(sign_bytes.x, c.high[half_][at], 0);
        high_of_signs += dot4(sign_bytes.y, c.high[half_][at + 1u], 0);
        low_of_signs += dot4(sign_bytes.x, c.low[half_][at], 0);
        low_of_signs += dot4(sign_bytes.y, c.low[half_][at + 1u], 0);
    }
    return (high - high_of_signs) * 256 + (low - low_of_signs);
}

// 32 small floats times the chunk.
float small_float_dot(Codes32 codes, uint scales, Chunk c, const uint format) {
    if (SCALE_BYTES(format) == 1u) // a power of two; 2^-127 is 0 here
        return uintBitsToFloat(scales << 23) * (0.5 * c.scale * float(small_eights_dot(codes, c, 0u, 4u)));
    int first = small_eights_dot(codes, c, 0u, 2u), second = small_eights_dot(codes, c, 2u, 4u);
    return 0.5 * c.scale * fma(e4m3_value(scales & 255u), float(first), e4m3_value(scales >> 8) * float(second));
}

// 32 weights of a matrix of a product times the chunk; `scales_biases` is their word, or their bytes of small floats.
float chunk_dot(Codes32 codes, uint scales_biases, Chunk c, const uint format, uint matrix) {
    if (IS_E2M1(format)) return small_float_dot(codes, scales_biases, c, format);
    if (SYMMETRIC(format) != 0u) return symmetric_dot(codes, scales_biases, c, format, matrix);
    vec2 sb = scales_biases_value(scales_biases, format);
    int high = 0, low = 0;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        uint half_ = i >> 1, at = 2u * (i & 1u);
        uvec4 words = half_ == 0u ? codes.first : codes.second;
        uvec2 bytes = CODE_BITS(format) == 8u ? code_bytes(words[at], words[at + 1u], format) : code_bytes(codes.first[i], 0u, format);
#if ACCUMULATORS == 3
        // The gemv kernels add one sum after the other, as they were measured. The bits are the same.
        high += dot4(bytes.x, c.high[half_][at], 0);
        high += dot4(bytes.y, c.high[half_][at + 1u], 0);
        low += dot4(bytes.x, c.low[half_][at], 0);
        low += dot4(bytes.y, c.low[half_][at + 1u], 0);
#else
        high += dot4(bytes.x, c.high[half_][at], 0) + dot4(bytes.y, c.high[half_][at + 1u], 0);
        low += dot4(bytes.x, c.low[half_][at], 0) + dot4(bytes.y, c.low[half_][at + 1u], 0);
#endif
    }
    return fma(sb.x * c.scale, float(high * 256 + low), sb.y * c.sum);
}
