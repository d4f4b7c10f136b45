// Threefry 2x32 with 20 rounds (Salmon et al. 2011): the counter-based generator of random_bits, for GLSL and C.

#ifndef VKMX_THREEFRY_H
#define VKMX_THREEFRY_H
#include "int64.h"

// One step: add, rotate, mix.
#define THREEFRY_MIX(x0, x1, rotation) \
    x0 += x1; \
    x1 = (x1 << (rotation)) | (x1 >> (32 - (rotation))); \
    x1 ^= x0;
#define THREEFRY_EVEN(x0, x1) THREEFRY_MIX(x0, x1, 13) THREEFRY_MIX(x0, x1, 15) THREEFRY_MIX(x0, x1, 26) THREEFRY_MIX(x0, x1, 6)
#define THREEFRY_ODD(x0, x1) THREEFRY_MIX(x0, x1, 17) THREEFRY_MIX(x0, x1, 29) THREEFRY_MIX(x0, x1, 16) THREEFRY_MIX(x0, x1, 24)
#define THREEFRY_KEY(x0, x1, a, b, i) \
    x0 += (a); \
    x1 += (b) + (i);

// The words of a block in x0 and x1, which were the counter; vectors in C hold several blocks. key2 is that of threefry_key2.
#define THREEFRY(x0, x1, key0, key1, key2) \
    THREEFRY_KEY(x0, x1, key0, key1, 0u) \
    THREEFRY_EVEN(x0, x1) \
    THREEFRY_KEY(x0, x1, key1, key2, 1u) \
    THREEFRY_ODD(x0, x1) \
    THREEFRY_KEY(x0, x1, key2, key0, 2u) \
    THREEFRY_EVEN(x0, x1) \
    THREEFRY_KEY(x0, x1, key0, key1, 3u) \
    THREEFRY_ODD(x0, x1) \
    THREEFRY_KEY(x0, x1, key1, key2, 4u) \
    THREEFRY_EVEN(x0, x1) \
    THREEFRY_KEY(x0, x1, key2, key0, 5u)

FN uint threefry_key2(uint key0, uint key1) { return key0 ^ key1 ^ 0x1bd11bdau; }

// The block of a key and a counter: its first word in the low half, its second in the high half.
FN uint64_t threefry(uint key0, uint key1, uint count0, uint count1) {
    uint key2 = threefry_key2(key0, key1), x0 = count0, x1 = count1;
    THREEFRY(x0, x1, key0, key1, key2)
    return U64(x1) << 32 | U64(x0);
}

#endif
