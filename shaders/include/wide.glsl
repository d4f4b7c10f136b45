// Elements of 8-byte dtypes in GLSL: loads that cast to int64, uint64 or complex numbers, and stores that cast back. float64 is there on
// the CPU only.

#include "math/complex.h"
#include "math/int64.h"

uint64_t load_pair(uint64_t address) { return packUint2x32(U32x2s(address).v[0]); }

// Truncates and saturates; NaN gives 0.
int64_t float_to_long(float x) {
    if (m_isnan(x)) return 0;
    if (x >= 9223372036854775807.0) return 0x7fffffffffffffffl;
    if (x <= -9223372036854775808.0) return -0x7fffffffffffffffl - 1l;
    return int64_t(x);
}
uint64_t float_to_ulong(float x) {
    if (m_isnan(x) || x <= -1.0) return 0ul;
    if (x >= 18446744073709551615.0) return 0xfffffffffffffffful;
    return uint64_t(x);
}

Complex load_complex(uint64_t address, uint dtype) {
    if (dtype == DTYPE_C64) return CX(F32s(address).v[0], F32s(address).v[1]);
    if (dtype == DTYPE_I64) return CX(float(int64_t(load_pair(address))), 0.0);
    if (dtype == DTYPE_U64) return CX(float(load_pair(address)), 0.0);
    uint bits = load_bits(address, 0, dtype);
    return CX(DTYPE_IS_FLOAT(dtype) ? uintBitsToFloat(bits) : DTYPE_IS_SIGNED(dtype) ? float(int(bits)) : float(bits), 0.0);
}

int64_t load_long(uint64_t address, uint dtype) {
    if (dtype == DTYPE_C64) return float_to_long(F32s(address).v[0]);
    if (DTYPE_IS_WIDE(dtype)) return int64_t(load_pair(address));
    uint bits = load_bits(address, 0, dtype);
    if (DTYPE_IS_FLOAT(dtype)) return float_to_long(uintBitsToFloat(bits));
    return DTYPE_IS_SIGNED(dtype) ? int64_t(int(bits)) : int64_t(bits);
}

uint64_t load_ulong(uint64_t address, uint dtype) {
    if (dtype == DTYPE_C64) return float_to_ulong(F32s(address).v[0]);
    if (DTYPE_IS_WIDE(dtype)) return load_pair(address);
    uint bits = load_bits(address, 0, dtype);
    if (DTYPE_IS_FLOAT(dtype)) return float_to_ulong(uintBitsToFloat(bits));
    return DTYPE_IS_SIGNED(dtype) ? uint64_t(int64_t(int(bits))) : uint64_t(bits);
}

void store_truth(uint64_t address, uint i, uint dtype, bool x) {
    if (DTYPE_IS_WIDE(dtype)) U32x2s(address).v[i] = dtype == DTYPE_C64 ? uvec2(x ? 0x3f800000u : 0u, 0u) : uvec2(x, 0u);
    else store_bits(address, i, dtype, DTYPE_IS_FLOAT(dtype) ? floatBitsToUint(float(x)) : uint(x));
}

void store_complex(uint64_t address, uint i, uint dtype, Complex x) {
    if (dtype == DTYPE_C64) U32x2s(address).v[i] = uvec2(floatBitsToUint(x.re), floatBitsToUint(x.im));
    else if (dtype == DTYPE_BOOL) store_truth(address, i, dtype, c_nonzero(x));
    else if (DTYPE_IS_FLOAT(dtype)) store_float(address, i, dtype, x.re);
    else if (dtype == DTYPE_I64) U32x2s(address).v[i] = unpackUint2x32(uint64_t(float_to_long(x.re)));
    else if (dtype == DTYPE_U64) U32x2s(address).v[i] = unpackUint2x32(float_to_ulong(x.re));
    else store_bits(address, i, dtype, DTYPE_IS_SIGNED(dtype) ? uint(m_to_int(x.re)) : m_to_uint(x.re));
}

void store_integer(uint64_t address, uint i, uint dtype, uint64_t x, float as_float) {
    if (dtype == DTYPE_C64) U32x2s(address).v[i] = uvec2(floatBitsToUint(as_float), 0u);
    else if (DTYPE_IS_WIDE(dtype)) U32x2s(address).v[i] = unpackUint2x32(x);
    else if (dtype == DTYPE_BOOL) store_truth(address, i, dtype, x != 0);
    else if (DTYPE_IS_FLOAT(dtype)) store_float(address, i, dtype, as_float);
    else store_bits(address, i, dtype, uint(x));
}
