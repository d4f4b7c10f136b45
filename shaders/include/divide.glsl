// Division to the nearest float.

// The quotient is corrected by its remainder, which products of 12-bit halves give exactly. Vulkan's own division may be off by
// units in the last place, which would move codes and scales.
float divide(float a, float b) {
    precise float q = a / b, q_split = 4097.0 * q, b_split = 4097.0 * b;
    precise float q_high = q_split - (q_split - q), b_high = b_split - (b_split - b);
    precise float q_low = q - q_high, b_low = b - b_high, product = q * b;
    precise float lost = ((q_high * b_high - product) + q_high * b_low + q_low * b_high) + q_low * b_low;
    precise float remainder = (a - product) - lost, nearest = q + remainder / b;
    if (q == 0.0) return uintBitsToFloat((floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u);
    return isinf(q_split) || isinf(b_split) ? q : nearest;
}
