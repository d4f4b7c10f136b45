#version 460
// elementwise: a chain of up to five rows of elementwise.h, out[i] = step4(… step1(step0(a[i], b[i], c[i]))).
//
// One thread an element, or with FOURS for four neighbouring ones, which are stored at once. An input whose bit in WIDE
// is set loads four at once if they are contiguous from a multiple of their size on. The steps are specialisation
// constants, so a driver folds each switch to the chosen row. It has to read all rows for each step first. So kernels
// `_single` (MAX_STEPS 1) serve chains of one step or none with a fifth of the compile time. Only kernels `_math`
// (MATH) have the long functions, two thirds of the code. Inputs are read through strides over four dimensions (as they
// lie when CONTIGUOUS is 1); the output is contiguous. With FOURS the last dimension is shape[3], a multiple of 4
// unless CONTIGUOUS. Indices are 32 bits: up to 2^31 elements.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH ElementwisePush
#include "include/common.glsl"
#include "include/quad.glsl"
#include "slow_path.h"

#ifndef MAX_STEPS
#define MAX_STEPS 5
#endif

layout(constant_id = 1) const uint DTYPE_A = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_B = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_C = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 5) const uint CONTIGUOUS = 0;
layout(constant_id = 6) const uint STEPS = 1;
layout(constant_id = 7) const uint STEP0 = 0;
layout(constant_id = 8) const uint STEP1 = 0;
layout(constant_id = 9) const uint STEP2 = 0;
layout(constant_id = 10) const uint STEP3 = 0;
layout(constant_id = 11) const uint STEP4 = 0;
layout(constant_id = 12) const uint FOURS = 0;
layout(constant_id = 13) const uint WIDE = 0;

const uint LANES = FOURS != 0 ? 4u : 1u; // elements of a thread

#define KIND_FLOAT 0u
#define KIND_INT 1u
#define KIND_UINT 2u

// A row sets the result's bits and their kind.
#define float_result(body) \
    bits = floatBitsToUint(body); \
    kind = KIND_FLOAT
#define int_result(body) \
    bits = uint(body); \
    kind = KIND_INT
#define uint_result(body) \
    bits = uint(body); \
    kind = KIND_UINT

void float_row(uint id, float a, float b, uint c, out uint bits, out uint kind) {
    bits = kind = 0u;
    switch (id) {
#define FLOAT_ROW(id, name, arity, result, body) \
    case id: result(body); break;
#ifndef MATH
#define MATH_ROW(id, name, arity, result, body)
#endif
#define INT_ROW(id, name, arity, result, body)
#define UINT_ROW(id, name, arity, result, body)
#include "include/elementwise.h"
    }
#ifdef MATH
    if (!m_is_slow(a)) return;
    switch (id) {
#define FLOAT_ROW(id, name, arity, result, body)
#define INT_ROW(id, name, arity, result, body)
#define UINT_ROW(id, name, arity, result, body)
#define SLOW_ROW(id, name, body) \
    case id: float_result(body); break;
#include "include/elementwise.h"
    }
#endif
}

void int_row(uint id, int a, int b, uint c, out uint bits, out uint kind) {
    bits = kind = 0u;
    switch (id) {
#define FLOAT_ROW(id, name, arity, result, body)
#define INT_ROW(id, name, arity, result, body) \
    case id: result(body); break;
#define UINT_ROW(id, name, arity, result, body)
#include "include/elementwise.h"
    }
}

void uint_row(uint id, uint a, uint b, uint c, out uint bits, out uint kind) {
    bits = kind = 0u;
    switch (id) {
#define FLOAT_ROW(id, name, arity, result, body)
#define INT_ROW(id, name, arity, result, body)
#define UINT_ROW(id, name, arity, result, body) \
    case id: result(body); break;
#include "include/elementwise.h"
    }
}

// The result as the narrow type of a separate op would have kept it.
uint rounded(uint bits, uint kind, uint rounding) {
    if (rounding == 0u) return bits;
    if (kind == KIND_FLOAT) {
        float x = uintBitsToFloat(bits);
        return rounding == 1u ? floatBitsToUint(f16_value(f16_bits(x))) : bf16_bits(x) << 16;
    }
    int width = rounding == 1u ? 8 : 16;
    return kind == KIND_INT ? uint(bitfieldExtract(int(bits), 0, width)) : bitfieldExtract(bits, 0, width);
}

uint registers[10];

void run_step(uint word, uint target) {
    uint id = word & 0xffu, domain = (word >> 8) & 3u, bits, kind;
    uint a = registers[(word >> 12) & 15u], b = registers[(word >> 16) & 15u], c = registers[(word >> 20) & 15u];
    if (domain == KIND_FLOAT) float_row(id, uintBitsToFloat(a), uintBitsToFloat(b), c, bits, kind);
    else if (domain == KIND_INT) int_row(id, int(a), int(b), c, bits, kind);
    else uint_row(id, a, b, c, bits, kind);
    registers[target] = rounded(bits, kind, (word >> 10) & 3u);
}

// Elements of an input, as many as a thread takes, from an index on.
uvec4 input_bits(uint r, int index, int stride, uint dtype) {
    uvec4 bits = uvec4(0);
    if (pc.address[r] == 0ul) return bits;
    uint64_t address = element_address(pc.address[r], index, DTYPE_BYTES(dtype));
    if ((WIDE >> r & 1u) != 0) return load_quad_bits(address, dtype);
    bits.x = load_bits(address, 0, dtype);
    if (LANES == 1) return bits;
    if (stride == 0) return bits.xxxx;
    [[unroll]] for (int e = 1; e < 4; e++)
        bits[e] = load_bits(element_address(address, e * stride, DTYPE_BYTES(dtype)), 0, dtype);
    return bits;
}

uint result(uint a, uint b, uint c) {
    registers[0] = a;
    registers[1] = b;
    registers[2] = c;
    registers[3] = pc.p.imm0;
    registers[4] = pc.p.imm1;
    if (STEPS > 0) run_step(STEP0, 5);
#if MAX_STEPS > 1
    if (STEPS > 1) run_step(STEP1, 6);
    if (STEPS > 2) run_step(STEP2, 7);
    if (STEPS > 3) run_step(STEP3, 8);
    if (STEPS > 4) run_step(STEP4, 9);
#endif
    uint bits = registers[STEPS == 0 ? 0 : 4 + STEPS];
    return DTYPE_OUT == DTYPE_BOOL ? uint(bits != 0u) : bits;
}

void main() {
    uint i = flat_thread() * LANES;
    if (i >= pc.p.count) return;
    int ia = int(i), ib = ia, ic = ia;
    if (CONTIGUOUS == 0) {
        ia = ib = ic = 0;
        uint rest = i;
        for (int d = 3; d >= 0 && rest != 0u; d--) {
            int at = int(rest % pc.p.shape[d]);
            rest /= pc.p.shape[d];
            ia += at * pc.p.a_strides[d];
            ib += at * pc.p.b_strides[d];
            ic += at * pc.p.c_strides[d];
        }
    }
    uvec4 a = input_bits(0, ia, pc.p.a_strides[3], DTYPE_A), b = input_bits(1, ib, pc.p.b_strides[3], DTYPE_B),
          c = input_bits(2, ic, pc.p.c_strides[3], DTYPE_C), bits;
    // A loop, since drivers read all rows for each call that is written down.
    [[unroll]] for (uint e = 0; e < LANES; e++)
        bits[e] = result(a[e], b[e], c[e]);
    if (LANES == 4 && i + 4 <= pc.p.count) {
        store_quad_bits(element_address(pc.address[3], int(i), DTYPE_BYTES(DTYPE_OUT)), DTYPE_OUT, bits);
    } else {
        for (uint e = 0; e < LANES && i + e < pc.p.count; e++) store_bits(pc.address[3], i + e, DTYPE_OUT, bits[e]);
    }
}
