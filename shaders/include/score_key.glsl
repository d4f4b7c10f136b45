// Scores as integers, by which the best ones are found.

// Unsigned integers in the order of floats; both zeros are one, and NaN is below all.
uint key_of(float x) {
    uint u = floatBitsToUint(x), magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0u;
    if (magnitude == 0u) u = 0u;
    return (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}
