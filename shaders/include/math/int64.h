// 64-bit integers in GLSL and C: casts of one spelling, and the high half of a product.

#ifndef VKMX_WIDE_H
#define VKMX_WIDE_H
#include "math.h"

#ifdef GL_core_profile
#define U64(x) uint64_t(x)
#define I64(x) int64_t(x)
#else
#define U64(x) ((uint64_t)(x))
#define I64(x) ((int64_t)(x))
#endif

#ifdef GL_core_profile
#define Int64 int64_t
#define Uint64 uint64_t
#else
typedef int64_t Int64;
typedef uint64_t Uint64;
#endif

// Division by 0 gives 0; the least number by -1 gives itself.
FN Int64 l_quotient(Int64 a, Int64 b) {
    if (b == 0) return 0;
    return b == -1 ? I64(U64(0) - U64(a)) : a / b;
}
// Floored: the remainder has the sign of the divisor.
FN Int64 l_divide(Int64 a, Int64 b) {
    Int64 q = l_quotient(a, b), r = I64(U64(a) - U64(q) * U64(b));
    return b != 0 && r != 0 && ((r < 0) != (b < 0)) ? q - 1 : q;
}
FN Int64 l_remainder(Int64 a, Int64 b) { return b == 0 ? a : I64(U64(a) - U64(l_divide(a, b)) * U64(b)); }
FN Uint64 m_power(Uint64 a, Uint64 b) {
    Uint64 r = U64(1);
    while (b != 0) {
        if ((b & 1) != 0) r *= a;
        a *= a;
        b >>= 1;
    }
    return r;
}

FN uint mul_high(uint a, uint b) { return UINT((U64(a) * U64(b)) >> 32); }

#endif
