#version 460
// elementwise_wide, elementwise_complex, elementwise_complex_math: one row of elementwise_wide.h, out[i] = row(a[i],
// b[i], c[i]). It is in int64 and uint64 (INTEGERS), in complex64, or in complex64 by functions of math.h (MATH).
// Kernels of their own for the sake of compile times.
//
// One thread an element. Operands of any dtype are cast to DOMAIN when loaded and the result to DTYPE_OUT when stored, so a cast is
// the row `identity`. Inputs are read through strides over four dimensions; the output is contiguous.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH ElementwiseWidePush
#include "include/common.glsl"
#include "include/wide.glsl"

layout(constant_id = 1) const uint DTYPE_A = DTYPE_I64;
layout(constant_id = 2) const uint DTYPE_B = DTYPE_I64;
layout(constant_id = 3) const uint DTYPE_C = DTYPE_BOOL;
layout(constant_id = 4) const uint DTYPE_OUT = DTYPE_I64;
layout(constant_id = 5) const uint DOMAIN = DOMAIN_I64;
layout(constant_id = 6) const uint ROW = 0;

// The result of a row. It is stored once, after all rows, as drivers compile every one of them.
#ifdef INTEGERS
uint64_t same;
#else
Complex same;
#endif
float real_part;
bool truth;
const uint SAME = 0u, TRUTH = 1u, FLOAT = 2u;
uint kind = SAME;

#define same_result(Type, body) same = Type(body)
#define truth_result(Type, body) truth = body, kind = TRUTH
#define float_result(Type, body) real_part = body, kind = FLOAT
#define NO_CASE(id, name, result, body)

#ifdef INTEGERS
void long_row(int64_t a, int64_t b, bool c) {
    switch (ROW) {
#define LONG_ROW(id, name, result, body) \
    case id: result(uint64_t, body); break;
#define ULONG_ROW NO_CASE
#define COMPLEX_ROW NO_CASE
#define DOUBLE_ROW NO_CASE
#include "include/elementwise_wide.h"
    }
}

void ulong_row(uint64_t a, uint64_t b, bool c) {
    switch (ROW) {
#define LONG_ROW NO_CASE
#define ULONG_ROW(id, name, result, body) \
    case id: result(uint64_t, body); break;
#define COMPLEX_ROW NO_CASE
#define DOUBLE_ROW NO_CASE
#include "include/elementwise_wide.h"
    }
}
#else
#define ROW_CASE(id, name, result, body) \
    case id: result(, body); break;
void complex_row(Complex a, Complex b, bool c) {
    switch (ROW) {
#define LONG_ROW NO_CASE
#define ULONG_ROW NO_CASE
#ifdef MATH
#define COMPLEX_ROW NO_CASE
#define COMPLEX_MATH_ROW ROW_CASE
#else
#define COMPLEX_ROW ROW_CASE
#define COMPLEX_MATH_ROW NO_CASE
#endif
#define DOUBLE_ROW NO_CASE
#include "include/elementwise_wide.h"
    }
}
#endif

void main() {
    uint place = flat_thread();
    if (place >= pc.p.count) return;
    int ia = 0, ib = 0, ic = 0;
    uint rest = place;
    for (int d = 3; d >= 0 && rest != 0u; d--) {
        int at = int(rest % pc.p.shape[d]);
        rest /= pc.p.shape[d];
        ia += at * pc.p.a_strides[d];
        ib += at * pc.p.b_strides[d];
        ic += at * pc.p.c_strides[d];
    }
    uint64_t a = element_address(pc.address[0], ia, DTYPE_BYTES(DTYPE_A));
    bool has_b = pc.address[1] != 0ul, has_c = pc.address[2] != 0ul;
    uint64_t b = has_b ? element_address(pc.address[1], ib, DTYPE_BYTES(DTYPE_B)) : a;
    uint dtype_b = has_b ? DTYPE_B : DTYPE_A;
    bool c = has_c && load_bits(element_address(pc.address[2], ic, DTYPE_BYTES(DTYPE_C)), 0, DTYPE_C) != 0u;
#ifdef INTEGERS
    if (DOMAIN == DOMAIN_I64) long_row(load_long(a, DTYPE_A), load_long(b, dtype_b), c);
    else ulong_row(load_ulong(a, DTYPE_A), load_ulong(b, dtype_b), c);
#else
    complex_row(load_complex(a, DTYPE_A), load_complex(b, dtype_b), c);
#endif
    uint64_t out_address = pc.address[3];
    if (kind == TRUTH) store_truth(out_address, place, DTYPE_OUT, truth);
    else if (kind == FLOAT) store_float(out_address, place, DTYPE_OUT, real_part);
#ifdef INTEGERS
    else store_integer(out_address, place, DTYPE_OUT, same, DOMAIN == DOMAIN_I64 ? float(int64_t(same)) : float(same));
#else
    else store_complex(out_address, place, DTYPE_OUT, same);
#endif
}
