// Kernel random_bits: threefry words in MLX's layout; see random_bits.comp.

#include "../../shaders/include/threefry.h"
#include "kernel.h"

void k_random_bits(const Call *call) {
    PUSH(RandomBitsPush);
    const uint32_t *keys = (const uint32_t *)call->buffer[0];
    uint32_t *words = (uint32_t *)call->buffer[1];
    uint32_t blocks = (p->words_per_key + 1) / 2;
    for (size_t key = 0; key < p->keys; key++) {
        for (uint32_t i = 0; i < blocks; i++) {
            bool paired = i < p->words_per_key / 2;
            uint64_t block = threefry(keys[2 * key], keys[2 * key + 1], i, paired ? i + blocks : 0);
            size_t at = key * p->words_per_key + i;
            words[at] = (uint32_t)block;
            if (paired) words[at + blocks] = (uint32_t)(block >> 32);
        }
    }
}
