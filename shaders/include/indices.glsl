// Indices of gather and scatter: negative ones count from the end, anything still outside is clamped.

uint index_of(uint bits, uint dtype, uint axis) {
    if (!DTYPE_IS_SIGNED(dtype)) return min(bits, axis - 1u);
    int index = int(bits);
    return uint(clamp(index < 0 ? index + int(axis) : index, 0, int(axis) - 1));
}

uint axis_index(uint64_t indices, uint i, uint dtype, uint axis) { return index_of(load_bits(indices, i, dtype), dtype, axis); }
