#version 460
// out[key] = words_per_key random words of keys[key], in the layout of MLX. With half = words / 2, the block of the
// counter pair (i, i + ceil(words / 2)) gives words i and i + ceil(words / 2) for i < half. An odd count puts the first
// word of the block (half, 0) in the middle. With NORMAL they are made normal numbers at once.
//
// A thread makes one block: keys * ceil(words_per_key / 2) threads.

#define BUFFERS 2
#define PUSH RandomBitsPush
#include "include/common.glsl"
#include "include/math/normal.h"
#include "include/math/threefry.h"

#ifdef NORMAL
#define STORE(at, word) F32s(pc.address[1]).v[at] = normal_number(word)
#else
#define STORE(at, word) U32s(pc.address[1]).v[at] = word
#endif

void main() {
    uint blocks = (pc.p.words_per_key + 1u) / 2u;
    uint thread = flat_thread();
    if (blocks == 0u || thread / blocks >= pc.p.keys) return;
    uint key = thread / blocks;
    uint i = thread % blocks;
    U32s keys = U32s(pc.address[0]);
    uint key0 = keys.v[2u * key];
    uint key1 = keys.v[2u * key + 1u];
    uint at = key * pc.p.words_per_key + i;
    bool paired = i < pc.p.words_per_key / 2u;
    uint64_t block = threefry(key0, key1, i, paired ? i + blocks : 0u);
    STORE(at, uint(block));
    if (paired) STORE(at + blocks, uint(block >> 32));
}
