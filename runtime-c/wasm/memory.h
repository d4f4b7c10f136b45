// The allocator of linear memory; see memory.c.

#ifndef VKMX_WASM_MEMORY_H
#define VKMX_WASM_MEMORY_H
#include <stdint.h>

// The owner of a block: a buffer counts in the memory figures, what the executor keeps for itself does not.
enum { MEMORY_BUFFER = 0, MEMORY_INTERNAL = 1 };

// Figures of vk_memory.
enum { MEMORY_ACTIVE = 0, MEMORY_PEAK, MEMORY_LIMIT };

#endif
