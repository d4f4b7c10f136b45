// Combines the value at an index with its update for scatter and scatter_sorted, as registers of up to 32 bits.

float combine_float(float a, float b) {
    switch (OP) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return m_minimum(a, b);
        case OP_MAX: return m_maximum(a, b);
        default: return b;
    }
}

uint combine_uint(uint a, uint b) {
    switch (OP) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return min(a, b);
        case OP_MAX: return max(a, b);
        default: return b;
    }
}

uint combine(uint a, uint b) {
    if (DTYPE_IS_FLOAT(DTYPE)) return floatBitsToUint(combine_float(uintBitsToFloat(a), uintBitsToFloat(b)));
    if (DTYPE_IS_SIGNED(DTYPE) && OP == OP_MIN) return uint(min(int(a), int(b)));
    if (DTYPE_IS_SIGNED(DTYPE) && OP == OP_MAX) return uint(max(int(a), int(b)));
    uint bits = combine_uint(a, b);
    return DTYPE == DTYPE_BOOL ? uint(bits != 0u) : bits;
}
