// How two elements of an 8-byte dtype become one (OP of scatter), in GLSL and C. Sums and products of integers wrap.

#ifndef VKMX_COMBINE_WIDE_H
#define VKMX_COMBINE_WIDE_H
#include "math/complex.h"
#include "dtype.h"
#include "math/int64.h"

FN Uint64 combine_ulong(uint op, Uint64 a, Uint64 b) {
    switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return a < b ? a : b;
        case OP_MAX: return a > b ? a : b;
        default: return b;
    }
}

FN Int64 combine_long(uint op, Int64 a, Int64 b) {
    if (op == OP_MIN) return a < b ? a : b;
    if (op == OP_MAX) return a > b ? a : b;
    return I64(combine_ulong(op, U64(a), U64(b)));
}

FN Complex combine_complex(uint op, Complex a, Complex b) {
    switch (op) {
        case OP_SUM: return c_add(a, b);
        case OP_PROD: return c_multiply(a, b);
        case OP_MIN: return c_minimum(a, b);
        case OP_MAX: return c_maximum(a, b);
        default: return b;
    }
}

#endif
