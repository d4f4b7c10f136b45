// Four neighbours of any dtype of up to 4 bytes as registers (dtype.h), in one load or store.

bool quad_aligned(uint64_t address, uint dtype) { return (uint(address) & (4u * DTYPE_BYTES(dtype) - 1u)) == 0u; }

// The address is a multiple of the size of four elements.
uvec4 load_quad_bits(uint64_t address, uint dtype) {
    if (DTYPE_BYTES(dtype) == 4u) return U32x4s(address).v[0];
    if (DTYPE_BYTES(dtype) == 1u) {
        uvec4 bytes = (uvec4(U32s(address).v[0]) >> uvec4(0u, 8u, 16u, 24u)) & 0xffu;
        return dtype == DTYPE_I8 ? uvec4(bitfieldExtract(ivec4(bytes), 0, 8)) : bytes;
    }
    uvec2 words = U32x2s(address).v[0];
    if (dtype == DTYPE_F16) return floatBitsToUint(vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)));
    uvec4 halves = uvec4(words.x & 0xffffu, words.x >> 16, words.y & 0xffffu, words.y >> 16);
    if (dtype == DTYPE_BF16) return halves << 16;
    return dtype == DTYPE_I16 ? uvec4(bitfieldExtract(ivec4(halves), 0, 16)) : halves;
}

// Floats round to nearest even, integers keep their low bits.
void store_quad_bits(uint64_t address, uint dtype, uvec4 bits) {
    if (DTYPE_BYTES(dtype) == 4u) {
        U32x4s(address).v[0] = bits;
        return;
    }
    if (DTYPE_IS_FLOAT(dtype)) {
        [[unroll]] for (uint e = 0; e < 4u; e++)
            bits[e] = dtype == DTYPE_F16 ? f16_bits(uintBitsToFloat(bits[e])) : bf16_bits(uintBitsToFloat(bits[e]));
    }
    if (DTYPE_BYTES(dtype) == 2u) {
        bits &= 0xffffu;
        U32x2s(address).v[0] = bits.xz | bits.yw << 16;
    } else {
        bits &= 0xffu;
        U32s(address).v[0] = bits.x | bits.y << 8 | bits.z << 16 | bits.w << 24;
    }
}
