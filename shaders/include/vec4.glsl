// Four consecutive floats of a float dtype in one load or store; the address of the run is a multiple of 16, i counts fours.

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Quads { uvec2 v[]; };

vec4 load_quad(uint64_t address, uint i, uint dtype) {
    if (dtype == DTYPE_F32) return F32x4s(address).v[i];
    uvec2 u = Quads(address).v[i];
    if (dtype == DTYPE_BF16) return uintBitsToFloat(uvec4(u.x << 16, u.x & 0xffff0000u, u.y << 16, u.y & 0xffff0000u));
    return vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
}

void store_quad(uint64_t address, uint i, uint dtype, vec4 x) {
    if (dtype == DTYPE_F32) F32x4s(address).v[i] = x;
    else if (dtype == DTYPE_F16) Quads(address).v[i] = uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
    else Quads(address).v[i] = uvec2(bf16_bits(x.x) | bf16_bits(x.y) << 16, bf16_bits(x.z) | bf16_bits(x.w) << 16);
}
