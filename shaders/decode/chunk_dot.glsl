// Codes of 32 features of a row times a chunk of activations.

// 32 weights times the chunk; `scales_biases` is their scale (low half) and bias.
float chunk_dot(Codes32 codes, uint scales_biases, Chunk c) {
    vec2 sb = scales_biases_value(scales_biases);
    int high = 0, low = 0;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        uint half_ = i >> 1, at = 2u * (i & 1u);
        uvec4 words = half_ == 0u ? codes.first : codes.second;
        uvec2 bytes = BITS == 8u ? code_bytes(words[at], words[at + 1u]) : code_bytes(codes.first[i], 0u);
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
