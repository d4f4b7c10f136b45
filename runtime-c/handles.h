// u32 handles: kind, generation and index. A handle that was freed, or that belongs to another device, finds nothing.

#ifndef VKMX_HANDLES_H
#define VKMX_HANDLES_H
#include <stdint.h>

#define INDEX_BITS 20
#define MAX_HANDLES ((1u << INDEX_BITS) - 1) // alive at once

typedef struct HandleEntry {
    void *object;
    uint32_t generation;
    uint32_t next_free;
} HandleEntry;

typedef struct HandleTable {
    HandleEntry *entries;
    uint32_t kind; // 1..3, in the top two bits
    uint32_t seed; // first generation; differs between devices
    uint32_t count, capacity;
    uint32_t first_free, last_free, free_count; // oldest first, so that an index rests long before it is used again
    uint32_t live;
} HandleTable;

void handles_init(HandleTable *table, uint32_t kind, uint32_t seed);
void handles_deinit(HandleTable *table);

// 0 when the table is full or the host is out of memory.
uint32_t handle_new(HandleTable *table, void *object);
void *handle_get(const HandleTable *table, uint32_t handle);
void handle_free(HandleTable *table, uint32_t handle);

#endif
