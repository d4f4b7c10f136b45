// Operators of reduce, scan, scatter, sort and sample on 32-bit registers (see dtype.h): one definition for GLSL and C.
//
// A register holds float bits, a sign-extended or a zero-extended integer. combine() is associative, so any tree of it
// is a valid order; identity() is its neutral element and so the result over no elements. ordered_key() maps a
// register to a uint that compares as the value does; argmin, argmax and the sorts are integer comparisons of it.

#ifndef VKMX_COMBINE_H
#define VKMX_COMBINE_H
#include "dtype.h"
#include "math/math.h"

// Neutral element: limits of the dtype for min and max, as floats the infinities.
FN uint identity(uint op, uint dtype) {
    bool wants_max = op == OP_MIN;
    if (op == OP_ALL || op == OP_ANY) return op == OP_ALL ? 1u : 0u;
    if (DTYPE_IS_FLOAT(dtype)) {
        if (op == OP_PROD) return 0x3f800000u;
        if (op == OP_MIN) return 0x7f800000u;
        return op == OP_MAX || op == OP_LOGSUMEXP ? 0xff800000u : 0u;
    }
    if (op == OP_PROD) return 1u;
    if (op != OP_MIN && op != OP_MAX) return 0u;
    if (DTYPE_IS_SIGNED(dtype)) {
        uint most = 0x7fffffffu >> (dtype == DTYPE_I32 ? 0u : (dtype == DTYPE_I16 ? 16u : 24u));
        return wants_max ? most : ~most;
    }
    if (!wants_max) return 0u;
    if (dtype == DTYPE_BOOL) return 1u;
    return 0xffffffffu >> (dtype == DTYPE_U32 ? 0u : (dtype == DTYPE_U16 ? 16u : 24u));
}

// min and max give NaN when either side is NaN; integers wrap.
FN uint combine(uint op, uint dtype, uint a, uint b) {
    if (op == OP_ALL) return a & b;
    if (op == OP_ANY) return a | b;
    if (DTYPE_IS_FLOAT(dtype)) {
        float x = FROM_BITS(a);
        float y = FROM_BITS(b);
        if (op == OP_SUM) return BITS(x + y);
        if (op == OP_PROD) return BITS(x * y);
        if (op == OP_MIN) return BITS(m_minimum(x, y));
        if (op == OP_MAX) return BITS(m_maximum(x, y));
        return BITS(m_logaddexp(x, y));
    }
    if (op == OP_SUM) return a + b;
    if (op == OP_PROD) return a * b;
    bool less = DTYPE_IS_SIGNED(dtype) ? INT(a) < INT(b) : a < b;
    return less == (op == OP_MIN) ? a : b;
}

// 1 if the register is not zero; NaN is not zero.
FN uint truth(uint bits, uint dtype) { return (DTYPE_IS_FLOAT(dtype) ? bits << 1 : bits) != 0u ? 1u : 0u; }

FN bool is_finite(float x) { return (BITS(x) & 0x7fffffffu) < 0x7f800000u; }

FN uint ordered_key(uint bits, uint dtype) {
    if (DTYPE_IS_FLOAT(dtype)) return m_key(FROM_BITS(bits));
    return DTYPE_IS_SIGNED(dtype) ? bits ^ 0x80000000u : bits;
}

// The same of the bits that an element has in memory, in as many: what radix sorts take digits of.
FN uint raw_key(uint raw, uint dtype) {
    uint sign = DTYPE_BYTES(dtype) == 4u ? 0x80000000u : DTYPE_BYTES(dtype) == 2u ? 0x8000u : 0x80u;
    uint all = sign | (sign - 1u);
    if (!DTYPE_IS_FLOAT(dtype)) return DTYPE_IS_SIGNED(dtype) ? (raw ^ sign) & all : raw;
    uint infinity = dtype == DTYPE_F32 ? 0x7f800000u : dtype == DTYPE_F16 ? 0x7c00u : 0x7f80u;
    uint key = (raw & sign) != 0u ? raw ^ all : raw | sign;
    key = raw == sign ? sign : key;
    return (raw & ~sign) > infinity ? all : key;
}

// Whether an ordered key of a float is that of a finite one: the keys of -inf and inf are the bounds.
FN bool is_finite_key(uint key) { return key > 0x007fffffu && key < 0xff800000u; }

// Key whose maximum is the element that argmax or argmin wants: NaN counts as the extreme of both.
FN uint extreme_key(uint op, uint bits, uint dtype) {
    uint key = ordered_key(bits, dtype);
    bool nan = DTYPE_IS_FLOAT(dtype) && key == 0xffffffffu;
    return op == OP_ARGMIN && !nan ? ~key : key;
}

#endif
