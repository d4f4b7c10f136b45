// Device memory: chunks (one VkDeviceMemory under one VkBuffer) cut into ranges.
//
// Small ranges share chunks and are found through bins by size; big ones have a chunk each. Freed ranges merge with
// their neighbours and are reused at once. A stream orders later work after its earlier work, and another stream that
// reuses a range waits for it. Range.uses says what to wait for, also for the host. A chunk that became empty is
// cached, and the oldest go back to the driver when the cache passes its limit or memory runs out.

#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "queue.h"

#define ALIGNMENT 256
#define SLACK 64 // bytes of slack after every buffer for wide loads
#define DEDICATED_BYTES ((uint64_t)16 << 20)
#define CHUNK_MIN ((uint64_t)8 << 20)
#define MIB(bytes) ((double)(bytes) / (1 << 20))

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// ---- lists ----------------------------------------------------------------------------------------------------------

static void chunk_append(ChunkList *list, Chunk *c) {
    c->next = NULL;
    c->prev = list->last;
    if (list->last) list->last->next = c;
    else list->first = c;
    list->last = c;
}

static void chunk_unlink(ChunkList *list, Chunk *c) {
    if (c->prev) c->prev->next = c->next;
    else list->first = c->next;
    if (c->next) c->next->prev = c->prev;
    else list->last = c->prev;
}

// The bin whose ranges are at least its size: four bins to a power of two, from ALIGNMENT on.
static uint32_t bin_of(uint64_t size) {
    uint32_t power = 0;
    while (size >> (power + 1)) power++;
    uint32_t bin = (power - 8) * 4 + (uint32_t)(size >> (power - 2) & 3);
    return bin < BINS ? bin : BINS - 1;
}

static void bin_insert(Pool *pool, Range *r) {
    Range **head = &pool->bins[bin_of(r->size)];
    r->prev = NULL;
    r->next = *head;
    if (*head) (*head)->prev = r;
    *head = r;
}

static void bin_remove(Pool *pool, Range *r) {
    if (r->prev) r->prev->next = r->next;
    else pool->bins[bin_of(r->size)] = r->next;
    if (r->next) r->next->prev = r->prev;
}

// ---- chunks ---------------------------------------------------------------------------------------------------------

// Up to two memory types: the best one, and the next where its heap is small and may be full (host-visible device memory).
static void find_types(const Facts *facts, Pool *pool, const VkMemoryPropertyFlags (*wishes)[2], uint32_t count) {
    for (uint32_t w = 0; w < count; w++) {
        for (uint32_t i = 0; i < facts->memory.memoryTypeCount && pool->type_count < 2; i++) {
            VkMemoryPropertyFlags flags = facts->memory.memoryTypes[i].propertyFlags;
            if ((flags & wishes[w][0]) != wishes[w][0] || (flags & wishes[w][1])) continue;
            if (pool->type_count == 1 && pool->types[0] == i) continue;
            pool->types[pool->type_count++] = i;
            break;
        }
    }
}

int32_t memory_init(Device *d) {
    enum {
        LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
        HOST = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
        CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
        // Types that need features or care of their own: AMD's coherent and lazily allocated or protected memory.
        NEVER = VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD,
    };
    // {flags that must be there, flags that must not}, best first
    static const VkMemoryPropertyFlags UNIFIED[][2] = {{LOCAL | HOST | CACHED, NEVER}, {LOCAL | HOST, NEVER}, {LOCAL, NEVER}};
    static const VkMemoryPropertyFlags DISCRETE[][2] = {{LOCAL, NEVER | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT}, {LOCAL, NEVER}};
    static const VkMemoryPropertyFlags VISIBLE[][2] = {{LOCAL | HOST, NEVER}, {HOST, NEVER | LOCAL}, {HOST, NEVER}};
    static const VkMemoryPropertyFlags STAGING[][2] = {{HOST | CACHED, NEVER | LOCAL}, {HOST | CACHED, NEVER}, {HOST, NEVER}};
    static const VkMemoryPropertyFlags BESIDE[][2] = {{HOST, NEVER | LOCAL | CACHED}, {HOST, NEVER | LOCAL}, {HOST, NEVER}};
    Memory *m = &d->memory;
    Pool *pools = m->pools;
    bool unified = d->facts.unified;
    if (unified) find_types(&d->facts, &pools[POOL_DEVICE], UNIFIED, 3);
    else find_types(&d->facts, &pools[POOL_DEVICE], DISCRETE, 2);
    find_types(&d->facts, &pools[POOL_VISIBLE], VISIBLE, 3);
    find_types(&d->facts, &pools[POOL_HOST], BESIDE, 3);
    find_types(&d->facts, &pools[POOL_READBACK], STAGING, 3);
    for (uint32_t i = 0; i < POOL_COUNT; i++)
        if (pools[i].type_count == 0) return fail(d, VKRT_ERROR_UNAVAILABLE, "%s has no suitable memory type", d->facts.core.deviceName);
    // A second type of another kind would change how a pool is used, so pools of device memory keep to the first. One that is full of
    // what the device's memory has no room for does not go on there.
    pools[POOL_DEVICE].type_count = pools[POOL_HOST].type_count = 1;
    VkMemoryPropertyFlags flags = d->facts.memory.memoryTypes[pools[POOL_DEVICE].types[0]].propertyFlags;
    pools[POOL_DEVICE].mapped = unified && (flags & HOST) == HOST;
    pools[POOL_VISIBLE].mapped = pools[POOL_HOST].mapped = pools[POOL_READBACK].mapped = true;
    m->cache_limit = smaller(larger(d->facts.heap_bytes / 8, CHUNK_BYTES), (uint64_t)2 << 30);
    return VKRT_OK;
}

static void chunk_free(Device *d, Chunk *c) {
    if (c->buffer) d->vk.DestroyBuffer(d->device, c->buffer, NULL);
    if (c->memory) { // unmaps as well
        d->vk.FreeMemory(d->device, c->memory, NULL);
        d->memory.reserved[c->heap] -= c->size;
    }
    free(c);
}

static int32_t chunk_bind(Device *d, Chunk *c, uint32_t type) {
    VkMemoryRequirements needs;
    d->vk.GetBufferMemoryRequirements(d->device, c->buffer, &needs);
    if (!(needs.memoryTypeBits >> type & 1)) return fail(d, VKRT_ERROR_VULKAN, "the driver refuses buffers in memory type %u", type);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = &flags,
        .allocationSize = needs.size,
        .memoryTypeIndex = type,
    };
    TRY(VK(d, AllocateMemory, d->device, &info, NULL, &c->memory));
    d->memory.reserved[c->heap] += c->size;
    TRY(VK(d, BindBufferMemory, d->device, c->buffer, c->memory, 0));
    if (d->memory.pools[c->pool].mapped) {
        void *mapped = NULL;
        TRY(VK(d, MapMemory, d->device, c->memory, 0, VK_WHOLE_SIZE, 0, &mapped));
        c->mapped = mapped;
    }
    VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = c->buffer};
    c->address = d->vk.GetBufferDeviceAddress(d->device, &address);
    return VKRT_OK;
}

// A chunk with one free range of at least `bytes`, in memory of the given type. It is in no list yet.
static int32_t chunk_new(Device *d, uint32_t pool, uint32_t type, uint64_t bytes, Chunk **out) {
    Chunk *c = calloc(1, sizeof *c);
    Range *r = calloc(1, sizeof *r);
    if (!c || !r) {
        free(c);
        free(r);
        return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    }
    c->pool = pool;
    c->heap = d->facts.memory.memoryTypes[type].heapIndex;
    c->cached = (d->facts.memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    c->size = bytes + ALIGNMENT; // room to align the first range
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = c->size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
    };
    int32_t status = VK(d, CreateBuffer, d->device, &info, NULL, &c->buffer);
    if (status == VKRT_OK) status = chunk_bind(d, c, type);
    if (status != VKRT_OK) {
        free(r);
        chunk_free(d, c);
        return status;
    }
    r->chunk = c;
    r->offset = (ALIGNMENT - c->address % ALIGNMENT) % ALIGNMENT;
    r->size = bytes;
    c->first = r;
    *out = c;
    return VKRT_OK;
}

static void chunk_release(Device *d, Chunk *c) {
    Memory *m = &d->memory;
    Range *r = c->first;
    chunk_unlink(&m->empty, c);
    m->cached -= r->size;
    if (!c->dedicated) {
        bin_remove(&m->pools[c->pool], r);
        m->pools[c->pool].bytes -= r->size;
    }
    free(r);
    chunk_free(d, c);
}

// Gives empty chunks back until no more than `limit` bytes of them stay; those that the device still uses stay as well.
static void trim(Device *d, uint64_t limit) {
    Memory *m = &d->memory;
    for (Chunk *c = m->empty.first, *next; c && m->cached > limit; c = next) {
        next = c->next;
        if (queue_done(d, &c->first->uses)) chunk_release(d, c);
    }
}

// A chunk from the driver; when memory is short, the second memory type and then the cache are tried.
static int32_t chunk_get(Device *d, uint32_t pool, uint64_t bytes, Chunk **out) {
    Pool *p = &d->memory.pools[pool];
    int32_t status = VKRT_ERROR_OUT_OF_MEMORY;
    for (uint32_t attempt = 0; attempt < 2; attempt++) {
        for (uint32_t i = 0; i < p->type_count; i++) {
            status = chunk_new(d, pool, p->types[i], bytes, out);
            if (status != VKRT_ERROR_OUT_OF_MEMORY) return status;
        }
        if (attempt == 1 || d->memory.cached == 0) break;
        TRY(queue_wait_all(d));
        trim(d, 0);
    }
    uint32_t heap = d->facts.memory.memoryTypes[p->types[p->type_count - 1]].heapIndex; // that of the type tried last
    const char *where = d->facts.memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT ? "on" : "of the host for";
    return fail(d, status,
                "no %.1f MiB of memory left %s %s: %.1f MiB in use of %.1f MiB. Free arrays or take a smaller model or a shorter context",
                MIB(bytes), where, d->facts.core.deviceName, MIB(d->memory.reserved[heap]), MIB(d->facts.memory.memoryHeaps[heap].size));
}

// ---- ranges ---------------------------------------------------------------------------------------------------------

// The first fit among the ranges of its bin, else any range of a larger bin.
static Range *bin_find(Pool *pool, uint64_t size) {
    uint32_t bin = bin_of(size);
    for (Range *r = pool->bins[bin]; r; r = r->next)
        if (r->size >= size) return r;
    while (++bin < BINS)
        if (pool->bins[bin]) return pool->bins[bin];
    return NULL;
}

static Chunk *cached_chunk(Memory *m, uint32_t pool, uint64_t size) {
    Chunk *best = NULL;
    for (Chunk *c = m->empty.first; c; c = c->next) {
        if (!c->dedicated || c->pool != pool || c->first->size < size || c->first->size - size > size / 8) continue;
        if (!best || c->first->size < best->first->size) best = c;
    }
    return best;
}

static void chunk_taken(Memory *m, Chunk *c) {
    if (!c->empty) return;
    c->empty = false;
    chunk_unlink(&m->empty, c);
    chunk_append(&m->used, c);
    m->cached -= c->first->size;
}

// Cuts the unneeded end off a range taken from a bin.
static void split(Pool *pool, Range *r, uint64_t size) {
    if (r->size - size < ALIGNMENT) return;
    Range *rest = calloc(1, sizeof *rest);
    if (!rest) return; // the range stays larger than it must be
    *rest = (Range){.chunk = r->chunk, .offset = r->offset + size, .size = r->size - size, .uses = r->uses, .before = r, .after = r->after};
    if (r->after) r->after->before = rest;
    r->after = rest;
    r->size = size;
    bin_insert(pool, rest);
}

static int32_t take_shared(Device *d, uint32_t pool, uint64_t size, Range **out) {
    Memory *m = &d->memory;
    Pool *p = &m->pools[pool];
    Range *r = bin_find(p, size);
    if (!r) {
        Chunk *c;
        TRY(chunk_get(d, pool, larger(smaller(larger(p->bytes, CHUNK_MIN), d->facts.chunk_bytes), size), &c));
        chunk_append(&m->used, c);
        p->bytes += c->first->size;
        r = c->first;
        bin_insert(p, r);
    }
    chunk_taken(m, r->chunk);
    bin_remove(p, r);
    split(p, r, size);
    *out = r;
    return VKRT_OK;
}

static int32_t take_dedicated(Device *d, uint32_t pool, uint64_t size, Range **out) {
    Memory *m = &d->memory;
    Chunk *c = cached_chunk(m, pool, size);
    if (c) {
        chunk_taken(m, c);
    } else {
        TRY(chunk_get(d, pool, size, &c));
        c->dedicated = true;
        chunk_append(&m->used, c);
    }
    *out = c->first;
    return VKRT_OK;
}

int32_t range_new(Device *d, uint32_t pool, uint64_t bytes, bool internal, Range **out) {
    Memory *m = &d->memory;
    uint64_t most = d->facts.largest_alloc - ALIGNMENT * 4;
    if (bytes > most)
        return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "%.1f MiB are more than one buffer of %s may hold (%.1f MiB)", MIB(bytes),
                    d->facts.core.deviceName, MIB(most));
    uint64_t size = (bytes + SLACK + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    Range *r = NULL;
    if (size >= smaller(DEDICATED_BYTES, d->facts.chunk_bytes)) TRY(take_dedicated(d, pool, size, &r));
    else TRY(take_shared(d, pool, size, &r));
    r->taken = true;
    r->written = 0; // earlier writes count by their uses
    r->internal = internal;
    if (internal) {
        m->internal += r->size;
    } else {
        m->active += r->size;
        m->peak = larger(m->peak, m->active);
        if (pool == POOL_HOST) m->host += r->size;
    }
    *out = r;
    return VKRT_OK;
}

// Merges the neighbour after `r` into `r`; both are out of their bins.
static void swallow(Range *r) {
    Range *gone = r->after;
    r->size += gone->size;
    for (uint32_t s = 0; s < VKRT_STREAMS; s++) r->uses.at[s] = larger(r->uses.at[s], gone->uses.at[s]);
    r->after = gone->after;
    if (gone->after) gone->after->before = r;
    free(gone);
}

void range_free(Device *d, Range *r) {
    Memory *m = &d->memory;
    Chunk *c = r->chunk;
    Pool *p = &m->pools[c->pool];
    if (r->internal) m->internal -= r->size;
    else m->active -= r->size;
    if (c->pool == POOL_HOST) m->host -= r->size;
    r->taken = false;
    if (!c->dedicated) {
        if (r->after && !r->after->taken) {
            bin_remove(p, r->after);
            swallow(r);
        }
        if (r->before && !r->before->taken) {
            r = r->before;
            bin_remove(p, r);
            swallow(r);
        }
        bin_insert(p, r);
    }
    if (!r->before && !r->after) {
        c->empty = true;
        chunk_unlink(&m->used, c);
        chunk_append(&m->empty, c);
        m->cached += r->size;
        trim(d, m->cache_limit);
    }
}

// ---- reports and the end ----------------------------------------------------------------------------------------------

int32_t memory_cache_limit(Device *d, uint64_t bytes) {
    d->memory.cache_limit = bytes;
    if (d->memory.cached > bytes) TRY(queue_wait_all(d));
    trim(d, bytes);
    return VKRT_OK;
}

static uint64_t difference(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// Bytes of a heap that can be allocated: those that the driver would give, and empty chunks.
static uint64_t heap_budget(const Device *d, const VkPhysicalDeviceMemoryBudgetPropertiesEXT *live, uint32_t heap) {
    const Memory *m = &d->memory;
    uint64_t size = d->facts.memory.memoryHeaps[heap].size, budget = difference(size, m->reserved[heap]);
    if (d->facts.memory_budget) budget = difference(live->heapBudget[heap], live->heapUsage[heap]);
    for (const Chunk *c = m->empty.first; c; c = c->next)
        if (c->heap == heap) budget += c->first->size;
    return smaller(budget, size);
}

void memory_report(Device *d, uint64_t *out) {
    const Memory *m = &d->memory;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT live = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    if (d->facts.memory_budget) {
        VkPhysicalDeviceMemoryProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &live};
        runtime.vk.GetPhysicalDeviceMemoryProperties2(d->physical, &properties);
    }
    uint32_t host = d->facts.memory.memoryTypes[m->pools[POOL_HOST].types[0]].heapIndex;
    bool beside = host != d->facts.heap;
    out[VKRT_MEMORY_ACTIVE] = m->active;
    out[VKRT_MEMORY_PEAK] = m->peak;
    out[VKRT_MEMORY_STAGING] = m->internal;
    out[VKRT_MEMORY_HEAP] = d->facts.heap_bytes;
    out[VKRT_MEMORY_CACHE] = m->cached;
    out[VKRT_MEMORY_CACHE_LIMIT] = m->cache_limit;
    out[VKRT_MEMORY_BUDGET] = heap_budget(d, &live, d->facts.heap);
    out[VKRT_MEMORY_HOST] = m->host;
    out[VKRT_MEMORY_HOST_BUDGET] = beside ? heap_budget(d, &live, host) : 0;
    out[VKRT_MEMORY_HOST_HEAP] = beside ? d->facts.memory.memoryHeaps[host].size : 0;
}

static void list_deinit(Device *d, ChunkList *list) {
    for (Chunk *c = list->first, *next; c; c = next) {
        next = c->next;
        for (Range *r = c->first, *after; r; r = after) {
            after = r->after;
            free(r);
        }
        chunk_free(d, c);
    }
    *list = (ChunkList){0};
}

void memory_deinit(Device *d) {
    list_deinit(d, &d->memory.used);
    list_deinit(d, &d->memory.empty);
}
