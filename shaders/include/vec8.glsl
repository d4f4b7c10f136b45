// Matrices read in eights: eight neighbours in memory at once, in 16-byte loads where alignment allows. An eight is
// kept as it was loaded, so that no thread waits for it before it is used.

#include "vector.glsl"

// As they lie in memory: 16-bit floats in the four words of `first`, others as the bits of registers.
struct Vec8 {
    uvec4 first, second;
};

bool in_pairs(uint dtype) { return dtype == DTYPE_F16 || dtype == DTYPE_BF16; }

// A matrix of lines by depths. Eights run along depth or along lines, whichever are neighbours in memory.
struct Operand {
    uint64_t address;
    int line_stride, depth_stride;
    uint lines, depths;
    bool along_depth, wide;
};

Operand operand_of(uint64_t address, uint dtype, int line_stride, int depth_stride, uint lines, uint depths, bool along_depth) {
    int step = along_depth ? depth_stride : line_stride, other = along_depth ? line_stride : depth_stride;
    bool wide = step == 1 && aligned16(address) && (other & 7) == 0 && (in_pairs(dtype) || DTYPE_BYTES(dtype) == 4);
    return Operand(address, line_stride, depth_stride, lines, depths, along_depth, wide);
}

// The eight at (line, depth) of a wide operand, all of it inside.
Vec8 load_eight(Operand o, uint dtype, uint line, uint depth) {
    uint64_t address = element_address(o.address, int(line) * o.line_stride + int(depth) * o.depth_stride, DTYPE_BYTES(dtype));
    return Vec8(U32x4s(address).v[0], in_pairs(dtype) ? uvec4(0) : U32x4s(address).v[1]);
}

// The eight at (line, depth) of any operand; zeros outside of the matrix.
Vec8 fetch_vec8(Operand o, uint dtype, uint line, uint depth) {
    Vec8 e = Vec8(uvec4(0), uvec4(0));
    if (line >= o.lines || depth >= o.depths) return e;
    uint inside = o.along_depth ? o.depths - depth : o.lines - line;
    if (o.wide && inside >= 8u) return load_eight(o, dtype, line, depth);
    int at = int(line) * o.line_stride + int(depth) * o.depth_stride, step = o.along_depth ? o.depth_stride : o.line_stride;
    [[unroll]] for (uint i = 0; i < 8u; i++) {
        uint64_t address = element_address(o.address, at + int(i) * step, DTYPE_BYTES(dtype));
        if (i >= inside) continue;
        if (in_pairs(dtype)) e.first[i / 2u] |= uint(U16s(address).v[0]) << 16u * (i % 2u);
        else if (i < 4u) e.first[i] = load_bits(address, 0, dtype);
        else e.second[i - 4u] = load_bits(address, 0, dtype);
    }
    return e;
}

Vec8 unpacked(Vec8 e, uint dtype) {
    if (!in_pairs(dtype)) return e;
    return Vec8(floatBitsToUint(pair_values(e.first.xy, dtype)), floatBitsToUint(pair_values(e.first.zw, dtype)));
}
