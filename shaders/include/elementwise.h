// THE elementwise table: one row per function, its body valid in GLSL and in C.
//
// Included by elementwise.comp and runtime-c/wasm/elementwise.c (once per domain or for all at once), read by `zig
// build gen`. A row is MACRO(id, name, body); the macro says what the function takes and gives:
//
//   <domains>_<result><arity>    domains: the letters F (float), I (int), U (uint) that the row serves
//                                result:  S same as the operands, or F, I, U; M is S by a long function
//                                arity:   1 reads a, 2 reads a and b, 3 reads a, b and the condition c, always uint
//
// A name has one id; where domains need different bodies it has several rows. Bool is uint 0 or 1; U rows named like a
// question give 0 or 1. Bodies are expressions over a, b, c and shaders/include/math/math.h, and defined for every
// operand. There is no trap and no undefined overflow, and NaN is recognized by its bits. Ids are append-only within a
// release.
//
// A step word (STEP0..4 of kernel `elementwise`) applies one row:
//
//   bits 0-7    row id
//   bits 8-9    domain of the operands: 0 float, 1 int, 2 uint
//   bits 10-11  rounding of the result, so that a fused chain equals separate ops: 0 none; float results: 1 float16,
//               2 bfloat16 (to nearest even and back); int and uint results: 1 wraps to 8 bits, 2 to 16
//   bits 12-15  register of operand a;  16-19 of b;  20-23 of c
//
// Registers 0, 1, 2 are the inputs a, b, c loaded by DTYPE_A, DTYPE_B, DTYPE_C. Registers 3, 4 are the immediates imm0,
// imm1, and 5 to 9 the results of steps 0 to 4. The output is the last step's result (register 0 when STEPS is 0),
// stored by DTYPE_OUT.
//
// The includer defines FLOAT_ROW, INT_ROW and UINT_ROW(id, name, arity, result, body); the result is float_result, int_result or
// uint_result. It defines macros that it does not need as empty. Optional macros:
//
// - SLOW_ROW(id, name, body), default empty: the body of an F_M1 row if m_is_slow(a). It keeps the row's own body short.
// - FAST_ROW(id, name, arity, test, body), default empty: a shorter body of a float row, with the same result if the test is true.
// - MATH_ROW, default FLOAT_ROW: the rows of long functions. Shaders have kernels of their own for these, because drivers compile every row.
//
// All of these are undefined again at the end of this file.

#ifndef MATH_ROW
#define MATH_ROW FLOAT_ROW
#endif
#ifndef SLOW_ROW
#define SLOW_ROW(id, name, body)
#endif
#ifndef FAST_ROW
#define FAST_ROW(id, name, arity, test, body)
#endif

#define F_S1(id, name, body) FLOAT_ROW(id, name, 1, float_result, body)
#define F_S2(id, name, body) FLOAT_ROW(id, name, 2, float_result, body)
#define F_S3(id, name, body) FLOAT_ROW(id, name, 3, float_result, body)
#define F_M1(id, name, body) MATH_ROW(id, name, 1, float_result, body)
#define F_M2(id, name, body) MATH_ROW(id, name, 2, float_result, body)
#define F_U1(id, name, body) FLOAT_ROW(id, name, 1, uint_result, body)
#define F_U2(id, name, body) FLOAT_ROW(id, name, 2, uint_result, body)
#define F_I1(id, name, body) FLOAT_ROW(id, name, 1, int_result, body)
#define I_S1(id, name, body) INT_ROW(id, name, 1, int_result, body)
#define I_S2(id, name, body) INT_ROW(id, name, 2, int_result, body)
#define I_S3(id, name, body) INT_ROW(id, name, 3, int_result, body)
#define I_U1(id, name, body) INT_ROW(id, name, 1, uint_result, body)
#define I_U2(id, name, body) INT_ROW(id, name, 2, uint_result, body)
#define I_F1(id, name, body) INT_ROW(id, name, 1, float_result, body)
#define U_S1(id, name, body) UINT_ROW(id, name, 1, uint_result, body)
#define U_S2(id, name, body) UINT_ROW(id, name, 2, uint_result, body)
#define U_S3(id, name, body) UINT_ROW(id, name, 3, uint_result, body)
#define U_F1(id, name, body) UINT_ROW(id, name, 1, float_result, body)
#define IU_S1(id, name, body) I_S1(id, name, body) U_S1(id, name, body)
#define IU_S2(id, name, body) I_S2(id, name, body) U_S2(id, name, body)
#define IU_U1(id, name, body) I_U1(id, name, body) U_S1(id, name, body)
#define IU_U2(id, name, body) I_U2(id, name, body) U_S2(id, name, body)
#define FU_S1(id, name, body) F_S1(id, name, body) U_S1(id, name, body)
#define FU_S2(id, name, body) F_S2(id, name, body) U_S2(id, name, body)
#define FIU_S1(id, name, body) F_S1(id, name, body) I_S1(id, name, body) U_S1(id, name, body)
#define FIU_S3(id, name, body) F_S3(id, name, body) I_S3(id, name, body) U_S3(id, name, body)

// ---- moves and casts ----------------------------------------------------------------------------------------------
// int and uint are the same 32 bits: a cast between them is identity, with the narrower type's wrap as rounding.

// clang-format off
FIU_S1(0, identity, a)
FIU_S3(1, select, c != 0u ? a : b)
F_I1(2, float_to_int, m_to_int(a))   // truncates, saturates, NaN gives 0
F_U1(3, float_to_uint, m_to_uint(a)) // the same; negative values give 0
I_F1(4, int_to_float, FLOAT(a))
U_F1(5, uint_to_float, m_from_uint(a))
F_U1(6, to_bool, UINT(m_nonzero(a)))
IU_U1(6, to_bool, UINT(a != 0))

// ---- unary --------------------------------------------------------------------------------------------------------

F_S1(10, abs, m_abs(a))
I_S1(10, abs, INT(m_magnitude(a)))
U_S1(10, abs, a)
F_S1(11, negative, m_negative(a))
I_S1(11, negative, INT(0u - UINT(a)))
U_S1(11, negative, 0u - a)
F_S1(12, sign, m_sign(a))
I_S1(12, sign, a > 0 ? 1 : (a < 0 ? -1 : 0))
U_S1(12, sign, UINT(a != 0u))
FU_S1(13, square, a * a)
I_S1(13, square, INT(UINT(a) * UINT(a)))
F_S1(14, sqrt, m_sqrt(a))
F_S1(15, rsqrt, 1.0f / m_sqrt(a))
F_S1(16, reciprocal, 1.0f / a)
F_S1(17, exp, m_exp(a))
FAST_ROW(17, exp, 1, m_exp_is_fast(a), m_exp_fast(a))
F_M1(18, expm1, m_expm1(a))
F_S1(19, log, m_log(a))
FAST_ROW(19, log, 1, m_log_is_fast(a), m_log_fast(a))
F_M1(20, log2, m_log2(a))
F_M1(21, log10, m_log10(a))
F_M1(22, log1p, m_log1p(a))
F_M1(23, sin, m_sin(a))
F_M1(24, cos, m_cos(a))
F_M1(25, tan, m_tan(a))
FAST_ROW(23, sin, 1, m_sin_is_fast(a), m_sin_fast(a))
FAST_ROW(24, cos, 1, m_sin_is_fast(a), m_cos_fast(a))
SLOW_ROW(23, sin, m_sin_slow(a))
SLOW_ROW(24, cos, m_cos_slow(a))
SLOW_ROW(25, tan, m_tan_slow(a))
F_M1(26, arcsin, m_asin(a))
F_M1(27, arccos, m_acos(a))
F_M1(28, arctan, m_atan(a))
F_M1(29, sinh, m_sinh(a))
F_M1(30, cosh, m_cosh(a))
F_M1(31, tanh, m_tanh(a))
F_M1(32, arcsinh, m_asinh(a))
F_M1(33, arccosh, m_acosh(a))
F_M1(34, arctanh, m_atanh(a))
F_M1(35, erf, m_erf(a))
F_M1(36, erfinv, m_erfinv(a))
FAST_ROW(36, erfinv, 1, m_erfinv_is_fast(a), m_erfinv_fast(a))
F_S1(37, sigmoid, m_sigmoid(a))
F_S1(38, ceil, m_ceil(m_beside_zero(a)))
F_S1(39, floor, m_floor(m_beside_zero(a)))
F_S1(40, round, m_round(a)) // half to even
F_S1(41, trunc, m_trunc(a))
IU_S1(42, bitwise_invert, ~a)
F_U1(43, logical_not, UINT(!m_nonzero(a)))
IU_U1(43, logical_not, UINT(a == 0))
F_U1(44, isnan, UINT(m_isnan(a)))
F_U1(45, isinf, UINT(m_isinf(a)))
F_U1(46, isposinf, UINT(BITS(a) == 0x7f800000u))
F_U1(47, isneginf, UINT(BITS(a) == 0xff800000u))
F_U1(48, isfinite, UINT((BITS(a) & 0x7fffffffu) < 0x7f800000u))

FIU_S1(49, conjugate, a) // of complex numbers: elementwise_wide.h
FIU_S1(50, real, a)
F_S1(51, imag, FLOAT(BITS(a) & 0u)) // 0, of whatever
IU_S1(51, imag, a ^ a)

// ---- binary -------------------------------------------------------------------------------------------------------

FU_S2(60, add, a + b)
I_S2(60, add, INT(UINT(a) + UINT(b)))
FU_S2(61, subtract, a - b)
I_S2(61, subtract, INT(UINT(a) - UINT(b)))
FU_S2(62, multiply, a * b)
I_S2(62, multiply, INT(UINT(a) * UINT(b)))
F_S2(63, divide, m_divide(a, b))
F_M2(64, remainder, m_remainder(a, b)) // floored: the sign of the divisor
I_S2(64, remainder, m_remainder_int(a, b))
U_S2(64, remainder, b == 0u ? a : a % (b | UINT(b == 0u)))
F_S2(65, floor_divide, m_floor(m_divide(a, b)))
I_S2(65, floor_divide, m_divide_int(a, b)) // a divisor of 0 gives 0
U_S2(65, floor_divide, b == 0u ? 0u : a / (b | UINT(b == 0u)))
F_M2(66, power, m_pow(a, b))
FAST_ROW(66, power, 2, m_pow_is_fast(a, b), m_pow_fast(a, b))
I_S2(66, power, m_pow_int(a, b)) // a negative exponent gives 0
U_S2(66, power, m_pow_uint(a, b))
F_S2(67, maximum, m_maximum(a, b)) // NaN propagates
IU_S2(67, maximum, a > b ? a : b)
F_S2(68, minimum, m_minimum(a, b))
IU_S2(68, minimum, a < b ? a : b)
F_M2(69, logaddexp, m_logaddexp(a, b))
F_M2(70, arctan2, m_atan2(a, b))
F_U2(71, equal, UINT(m_equal(a, b)))
IU_U2(71, equal, UINT(a == b))
F_U2(72, not_equal, UINT(!m_equal(a, b)))
IU_U2(72, not_equal, UINT(a != b))
F_U2(73, less, UINT(m_less(a, b)))
IU_U2(73, less, UINT(a < b))
F_U2(74, less_equal, UINT(m_less_equal(a, b)))
IU_U2(74, less_equal, UINT(a <= b))
F_U2(75, greater, UINT(m_less(b, a)))
IU_U2(75, greater, UINT(a > b))
F_U2(76, greater_equal, UINT(m_less_equal(b, a)))
IU_U2(76, greater_equal, UINT(a >= b))
F_U2(77, logical_and, UINT(m_nonzero(a) && m_nonzero(b)))
IU_U2(77, logical_and, UINT(a != 0 && b != 0))
F_U2(78, logical_or, UINT(m_nonzero(a) || m_nonzero(b)))
IU_U2(78, logical_or, UINT(a != 0 || b != 0))
IU_S2(79, bitwise_and, a & b)
IU_S2(80, bitwise_or, a | b)
IU_S2(81, bitwise_xor, a ^ b)
I_S2(82, left_shift, UINT(b) > 31u ? 0 : INT(UINT(a) << (UINT(b) & 31u))) // all bits out: 0, or the sign
U_S2(82, left_shift, b > 31u ? 0u : a << (b & 31u))
I_S2(83, right_shift, a >> (UINT(b) > 31u ? 31u : UINT(b)))
U_S2(83, right_shift, b > 31u ? 0u : a >> (b & 31u))

#undef F_S1
#undef F_S2
#undef F_S3
#undef F_M1
#undef F_M2
#undef F_U1
#undef F_U2
#undef F_I1
#undef I_S1
#undef I_S2
#undef I_S3
#undef I_U1
#undef I_U2
#undef I_F1
#undef U_S1
#undef U_S2
#undef U_S3
#undef U_F1
#undef IU_S1
#undef IU_S2
#undef IU_U1
#undef IU_U2
#undef FU_S1
#undef FU_S2
#undef FIU_S1
#undef FIU_S3
#undef FLOAT_ROW
#undef INT_ROW
#undef UINT_ROW
#undef MATH_ROW
#undef SLOW_ROW
#undef FAST_ROW
// clang-format on
