#version 460
// elementwise_wide: one row of elementwise_wide.h, out[i] = row(a[i], b[i], c[i]), in int64, uint64 or complex64.
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

uint place; // of the result

#define same_result(body) store_same(body)
#define truth_result(body) store_truth(pc.address[3], place, DTYPE_OUT, body)
#define float_result(body) store_float(pc.address[3], place, DTYPE_OUT, body)

void store_same(int64_t x) { store_integer(pc.address[3], place, DTYPE_OUT, uint64_t(x), float(x)); }
void store_same(uint64_t x) { store_integer(pc.address[3], place, DTYPE_OUT, x, float(x)); }
void store_same(Complex x) { store_complex(pc.address[3], place, DTYPE_OUT, x); }

void long_row(int64_t a, int64_t b, bool c) {
    switch (ROW) {
#define LONG_ROW(id, name, result, body) \
    case id: result(LONG_##result(body)); break;
#define LONG_same_result(body) int64_t(body)
#define LONG_truth_result(body) (body)
#define ULONG_ROW(id, name, result, body)
#define COMPLEX_ROW(id, name, result, body)
#define DOUBLE_ROW(id, name, result, body)
#include "include/elementwise_wide.h"
    }
}

void ulong_row(uint64_t a, uint64_t b, bool c) {
    switch (ROW) {
#define LONG_ROW(id, name, result, body)
#define ULONG_ROW(id, name, result, body) \
    case id: result(ULONG_##result(body)); break;
#define ULONG_same_result(body) uint64_t(body)
#define ULONG_truth_result(body) (body)
#define COMPLEX_ROW(id, name, result, body)
#define DOUBLE_ROW(id, name, result, body)
#include "include/elementwise_wide.h"
    }
}

void complex_row(Complex a, Complex b, bool c) {
    switch (ROW) {
#define LONG_ROW(id, name, result, body)
#define ULONG_ROW(id, name, result, body)
#define COMPLEX_ROW(id, name, result, body) \
    case id: result(body); break;
#define DOUBLE_ROW(id, name, result, body)
#include "include/elementwise_wide.h"
    }
}

void main() {
    place = flat_thread();
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
    if (DOMAIN == DOMAIN_I64) long_row(load_long(a, DTYPE_A), load_long(b, dtype_b), c);
    else if (DOMAIN == DOMAIN_U64) ulong_row(load_ulong(a, DTYPE_A), load_ulong(b, dtype_b), c);
    else complex_row(load_complex(a, DTYPE_A), load_complex(b, dtype_b), c);
}
