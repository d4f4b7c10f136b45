// Vec8 consecutive floats of a float dtype in 16-byte loads; the address of the run is a multiple of 16.

bool aligned16(uint64_t address) { return (uint(address) & 15u) == 0u; }

vec4 pair_values(uvec2 u, uint dtype) {
    if (dtype == DTYPE_BF16) return uintBitsToFloat(uvec4(u.x << 16, u.x & 0xffff0000u, u.y << 16, u.y & 0xffff0000u));
    return vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
}

// Elements i..i+7, i a multiple of 8.
void load8(uint64_t address, uint i, uint dtype, out vec4 first, out vec4 second) {
    if (dtype == DTYPE_F32) {
        first = F32x4s(address).v[i / 4];
        second = F32x4s(address).v[i / 4 + 1];
    } else {
        uvec4 u = U32x4s(address).v[i / 8];
        first = pair_values(u.xy, dtype);
        second = pair_values(u.zw, dtype);
    }
}

// One float as it lies in memory, and its value: a load whose result is not needed yet.
uint load_raw(uint64_t address, uint i, uint dtype) { return dtype == DTYPE_F32 ? U32s(address).v[i] : uint(U16s(address).v[i]); }

float raw_float(uint raw, uint dtype) {
    return dtype == DTYPE_F32 ? uintBitsToFloat(raw) : dtype == DTYPE_F16 ? f16_value(raw) : bf16_value(raw);
}
