// Device memory: large chunks from the driver, cut into ranges.

#ifndef VKMX_MEMORY_H
#define VKMX_MEMORY_H
#include <stdint.h>

#include "state.h"

int32_t memory_init(Device *d);
void memory_deinit(Device *d);
// A range of a buffer, or `internal`: the runtime's own.
int32_t range_new(Device *d, uint32_t pool, uint64_t bytes, bool internal, Range **out);
void range_free(Device *d, Range *range);
void memory_report(Device *d, uint64_t *out);
int32_t memory_cache_limit(Device *d, uint64_t bytes); // the empty chunks above it go back to the driver
static inline uint8_t *range_mapped(const Range *r) { return r->chunk->mapped ? r->chunk->mapped + r->offset : NULL; }
static inline VkDeviceAddress range_address(const Range *r) { return r->chunk->address + r->offset; }

#endif
