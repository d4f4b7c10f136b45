// Threefry 2x32 with 20 rounds (Salmon et al. 2011): the counter-based generator behind random_bits, for GLSL and C.

#ifndef VKMX_THREEFRY_H
#define VKMX_THREEFRY_H
#include "int64.h"

// One step: add, rotate, mix.
#define THREEFRY_MIX(rotation) \
    x0 += x1; \
    x1 = (x1 << (rotation)) | (x1 >> (32 - (rotation))); \
    x1 ^= x0;
#define THREEFRY_EVEN THREEFRY_MIX(13) THREEFRY_MIX(15) THREEFRY_MIX(26) THREEFRY_MIX(6)
#define THREEFRY_ODD THREEFRY_MIX(17) THREEFRY_MIX(29) THREEFRY_MIX(16) THREEFRY_MIX(24)
#define THREEFRY_KEY(a, b, i) \
    x0 += (a); \
    x1 += (b) + (i);

// The block of a key and a counter: its first word in the low half, its second in the high half.
FN uint64_t threefry(uint key0, uint key1, uint count0, uint count1) {
    uint key2 = key0 ^ key1 ^ 0x1bd11bdau;
    uint x0 = count0 + key0;
    uint x1 = count1 + key1;
    THREEFRY_EVEN THREEFRY_KEY(key1, key2, 1u) THREEFRY_ODD THREEFRY_KEY(key2, key0, 2u) THREEFRY_EVEN THREEFRY_KEY(key0, key1, 3u)
                THREEFRY_ODD THREEFRY_KEY(key1, key2, 4u) THREEFRY_EVEN THREEFRY_KEY(key2, key0, 5u) return U64(x1)
            << 32 |
        U64(x0);
}

#undef THREEFRY_MIX
#undef THREEFRY_EVEN
#undef THREEFRY_ODD
#undef THREEFRY_KEY

#endif
