// Floats of four and eight bits and the scales of their groups, in the quantization modes mxfp4, mxfp8 and nvfp4. Valid
// GLSL and C. The includer has bf16_value, bf16_bits, f16_value and f16_bits.
//
//   e2m1  sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6
//   e4m3  sign, four bits of exponent, three of mantissa: up to 448; 127 and 255 are NaN
//   e8m0  an exponent: 2^(code - 127); 255 is infinity, as in MLX
//
// Codes are those of MLX on the CPU, which rounds every step to the dtype of the weights. Values are made of bits: GPUs may take
// subnormal floats for 0.

#ifndef VKMX_SMALL_FLOAT_H
#define VKMX_SMALL_FLOAT_H
#include "../dtype.h"
#include "math.h"

// x as a float dtype holds it.
FN float as_dtype(float x, uint dtype) {
    if (dtype == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return dtype == DTYPE_F16 ? f16_value(f16_bits(x)) : x;
}

// ---- codes to numbers ---------------------------------------------------------------------------------------------

FN float e2m1_value(uint code) { // twice the magnitudes lie in the digits of a number
    float size = FLOAT(0xc8643210u >> (code & 7u) * 4u & 15u) * 0.5f;
    return FROM_BITS(BITS(size) | (code & 8u) << 28);
}

FN float e4m3_value(uint code) {
    uint size = code & 127u;
    float least = FLOAT(size) * 0.001953125f; // steps of 2^-9
    uint bits = size < 8u ? BITS(least) : size == 127u ? 0x7fc00000u : (size << 20) + 0x3c000000u;
    return FROM_BITS(bits | (code & 128u) << 24);
}

FN float e8m0_value(uint code) { return FROM_BITS(code == 0u ? 0x400000u : code << 23); }

FN float number_value(uint code, uint mode) { return mode == MODE_MXFP8 ? e4m3_value(code) : e2m1_value(code); }
FN float scale_value(uint code, uint mode) { return mode == MODE_NVFP4 ? e4m3_value(code) : e8m0_value(code); }

// A number above times a power of two, either of which may be subnormal: the number is a whole one of units of 2^-9.
FN float scaled_by_power(float number, float power) {
    uint exponent = BITS(power) >> 23; // 0 stands for 2^-127
    if (exponent > 9u || m_isnan(number)) return number * power;
    uint units = UINT(m_abs(number) * 512.0f);
    float normal = m_abs(number) * 5.9604645e-8f * m_pow2i(INT(exponent) - 103); // by 2^-24 first
    return m_copysign(units >> (10u - exponent) != 0u ? normal : FROM_BITS(units << (exponent + 13u)), number);
}

// ---- numbers to codes ---------------------------------------------------------------------------------------------

// To nearest even; NaN and numbers beyond 448 give NaN.
FN uint e4m3_code(float x) {
    uint bits = BITS(x), size = bits & 0x7fffffffu;
    PRECISE float steps = FROM_BITS(size) + 16384.0f; // rounds to steps of 2^-9
    uint least = BITS(steps) - 0x46800000u, other = (size + 0x7ffffu + (size >> 20 & 1u) - 0x3c000000u) >> 20;
    uint code = size >= 0x43e00000u ? 126u : size < 0x3c800000u ? least : other;
    return code | (bits >> 24 & 128u);
}

// The number of the least distance, of equal ones the smallest; distances are rounded to a dtype, which far beyond 6 makes them
// equal. No -0; infinity and NaN give 0.
FN uint e2m1_code(float x, uint dtype) {
    float size = m_abs(x), least = size;
    uint code = 0u;
    if (size <= 64.0f) {
        code = UINT(size > 0.25f) + UINT(size > 0.75f) + UINT(size > 1.25f) + UINT(size > 1.75f) + UINT(size > 2.5f) + UINT(size > 3.5f) +
               UINT(size > 5.0f);
    } else if (BITS(size) < 0x7f800000u) {
        for (uint i = 1u; i < 8u; i++) {
            PRECISE float distance = size - e2m1_value(i);
            float rounded = as_dtype(distance, dtype);
            code = rounded < least ? i : code;
            least = rounded < least ? rounded : least;
        }
    }
    return code != 0u && x < 0.0f ? code + 8u : code;
}

// ceil(log2(x)) for a positive number, of the logarithm as float32 has it: a mantissa only just above 1 does not lift it.
FN int ceil_log2(float x) {
    bool small = m_is_subnormal(x);
    uint bits = BITS(small ? m_subnormal_units(x) : x);
    int n = INT(bits >> 23) - (small ? 276 : 127), beyond = n < 0 ? -2 * n - 1 : 2 * n + 1; // twice the size of what is above n
    // Half a step of the logarithm there, in steps of the mantissa.
    float half_step = n == 0 ? 0.0f : 0.34657359f * m_pow2i(INT(BITS(FLOAT(beyond)) >> 23) - 128);
    return n + INT((bits & 0x7fffffu) > UINT(m_floor(half_step)));
}

#endif
