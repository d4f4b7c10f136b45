// Handles: two bits kind, ten bits generation, twenty bits index. Freed indices wait in a queue. The queue keeps at
// least REST of them, so a generation repeats only after more than a million frees.

#include "handles.h"

#include <stdlib.h>

#define GENERATION_BITS 10
#define INDEX_MASK MAX_HANDLES
#define GENERATION_MASK ((1u << GENERATION_BITS) - 1)
#define REST 1024
#define NONE 0xffffffffu

void handles_init(HandleTable *table, uint32_t kind, uint32_t seed) {
    *table = (HandleTable){.kind = kind, .seed = seed & GENERATION_MASK, .first_free = NONE, .last_free = NONE};
}

void handles_deinit(HandleTable *table) {
    free(table->entries);
    table->entries = NULL;
    table->count = table->capacity = table->live = 0;
}

static uint32_t pack(const HandleTable *table, uint32_t index) {
    return table->kind << (INDEX_BITS + GENERATION_BITS) | table->entries[index].generation << INDEX_BITS | index;
}

static uint32_t take_free(HandleTable *table) {
    uint32_t index = table->first_free;
    table->first_free = table->entries[index].next_free;
    if (table->first_free == NONE) table->last_free = NONE;
    table->free_count--;
    return index;
}

static uint32_t append(HandleTable *table) {
    if (table->count == table->capacity) {
        uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
        HandleEntry *entries = realloc(table->entries, capacity * sizeof *entries);
        if (!entries) return NONE;
        table->entries = entries;
        table->capacity = capacity;
    }
    table->entries[table->count] = (HandleEntry){.generation = table->seed, .next_free = NONE};
    return table->count++;
}

uint32_t handle_new(HandleTable *table, void *object) {
    uint32_t index = NONE;
    if (table->free_count <= REST && table->count < INDEX_MASK) index = append(table);
    if (index == NONE && table->free_count > 0) index = take_free(table);
    if (index == NONE) return 0;
    table->entries[index].object = object;
    table->live++;
    return pack(table, index);
}

void *handle_get(const HandleTable *table, uint32_t handle) {
    uint32_t index = handle & INDEX_MASK;
    if (index >= table->count || pack(table, index) != handle) return NULL;
    return table->entries[index].object;
}

void handle_free(HandleTable *table, uint32_t handle) {
    if (!handle_get(table, handle)) return;
    uint32_t index = handle & INDEX_MASK;
    HandleEntry *entry = &table->entries[index];
    entry->object = NULL;
    entry->generation = (entry->generation + 1) & GENERATION_MASK;
    entry->next_free = NONE;
    if (table->last_free == NONE) table->first_free = index;
    else table->entries[table->last_free].next_free = index;
    table->last_free = index;
    table->free_count++;
    table->live--;
}
