// Blocks of linear memory: good fit over size classes, neighbours merged when freed, memory.grow when nothing fits.
//
// Memory between __heap_base and its end is a row of blocks. Each block has a 64-byte header, the bytes, and at least
// 64 bytes of slack. Kernels may load, but never store, whole vectors past the end. Sizes are counted in units of 64
// bytes; a used sentinel of size 0 closes the row. Free blocks hang in lists by size class (four classes a power of
// two, found through a bitmap). Only the thread that runs Plans may call in here.

#include "memory.h"

#include <stdbool.h>
#include <stddef.h>

#define EXPORT(name) __attribute__((export_name(#name))) name

#define UNIT 64u
#define PAGE 65536u
#ifdef __wasm64__
#define MAX_PAGES (1u << 18) // 16 GiB, the most that engines allow
#else
#define MAX_PAGES (1u << 16)
#endif
#define GROW_PAGES 256u // grow by at least 16 MiB; untouched pages cost nothing
#define CLASSES 128u
#define TRIES 16 // blocks of one class looked at before a larger class is taken

enum { BLOCK_USED = 0x55534544, BLOCK_FREE = 0x46524545 };

typedef struct Block {
    uint32_t units;  // header and slack included; 0 in the sentinel
    uint32_t before; // units of the block in front, 0 for the first
    uint32_t state;
    uint32_t kind;
    uint64_t bytes; // as asked for
    struct Block *next, *previous;
    uint32_t unused[16 - 6 - 2 * sizeof(void *) / 4];
} Block;
_Static_assert(sizeof(Block) == UNIT, "a header is one unit");

static struct Heap {
    Block *first;
    Block *end; // the sentinel
    Block *free[CLASSES];
    uint32_t filled[CLASSES / 32]; // bit c: free[c] is not empty
    uint64_t active;
    uint64_t peak;
} heap;

extern unsigned char __heap_base;

static Block *after(Block *b) { return b + b->units; }

static uint32_t class_of(uint32_t units) {
    if (units < 4) return units;
    uint32_t log = 31u - (uint32_t)__builtin_clz(units);
    return log * 4u + (units >> (log - 2u) & 3u);
}

static void list_add(Block *b) {
    uint32_t c = class_of(b->units);
    b->state = BLOCK_FREE;
    b->previous = NULL;
    b->next = heap.free[c];
    if (b->next) b->next->previous = b;
    heap.free[c] = b;
    heap.filled[c / 32] |= 1u << c % 32;
}

static void list_remove(Block *b) {
    uint32_t c = class_of(b->units);
    if (b->next) b->next->previous = b->previous;
    if (b->previous) b->previous->next = b->next;
    else if (!(heap.free[c] = b->next)) heap.filled[c / 32] &= ~(1u << c % 32);
}

// Sets the size of a block, and its copy in the next block.
static void set_units(Block *b, uint32_t units) {
    b->units = units;
    after(b)->before = units;
}

// Puts a block into the free lists, merged with free neighbours.
static void give(Block *b) {
    Block *next = after(b);
    if (next->state == BLOCK_FREE) {
        list_remove(next);
        set_units(b, b->units + next->units);
    }
    if (b->before) {
        Block *previous = b - b->before;
        if (previous->state == BLOCK_FREE) {
            list_remove(previous);
            set_units(previous, previous->units + b->units);
            b->state = 0;
            b = previous;
        }
    }
    list_add(b);
}

// Makes [sentinel, end of memory) a free block and closes the row anew.
static void extend(uint32_t pages) {
    Block *b = heap.end;
    // In units, because the end of a full memory may not fit into a pointer.
    uint32_t end_unit = pages * (PAGE / UNIT), at = (uint32_t)((uintptr_t)b / UNIT);
    heap.end = b + (end_unit - 1u - at);
    *heap.end = (Block){.state = BLOCK_USED};
    if (heap.end == b) return;
    set_units(b, end_unit - 1u - at);
    give(b);
}

static void heap_start(void) {
    uintptr_t base = ((uintptr_t)&__heap_base + UNIT - 1u) / UNIT * UNIT;
    heap.first = heap.end = (Block *)base;
    uint32_t pages = (uint32_t)__builtin_wasm_memory_size(0);
    if ((uint64_t)base + UNIT > (uint64_t)pages * PAGE) __builtin_wasm_memory_grow(0, 1), pages++;
    *heap.end = (Block){.state = BLOCK_USED};
    extend(pages);
}

// Grows so that a block of `units` fits at the end.
static bool grow(uint32_t units) {
    uint32_t pages = (uint32_t)__builtin_wasm_memory_size(0), tail = 0;
    if (heap.end->before && (heap.end - heap.end->before)->state == BLOCK_FREE) tail = heap.end->before;
    uint64_t need = ((uint64_t)(units - tail) * UNIT + PAGE - 1u) / PAGE;
    if (need > MAX_PAGES - pages) return false;
    uint32_t by = (uint32_t)need;
    if (by < GROW_PAGES) by = GROW_PAGES < MAX_PAGES - pages ? GROW_PAGES : MAX_PAGES - pages;
    if (__builtin_wasm_memory_grow(0, by) == (size_t)-1) {
        // The engine may have a lower limit than the address space: ask for no more than needed.
        if (by == need || __builtin_wasm_memory_grow(0, (size_t)need) == (size_t)-1) return false;
        by = (uint32_t)need;
    }
    extend(pages + by);
    return true;
}

static Block *find(uint32_t units) {
    uint32_t c = class_of(units);
    // The class of the size itself holds blocks that are too small as well: the best of the first few that fit.
    Block *best = NULL;
    int tries = 0;
    for (Block *b = heap.free[c]; b && tries < TRIES; b = b->next, tries++)
        if (b->units >= units && (!best || b->units < best->units)) best = b;
    if (best) return best;
    for (uint32_t d = c + 1; d < CLASSES; d = (d / 32 + 1) * 32) {
        uint32_t bits = heap.filled[d / 32] >> d % 32;
        if (bits) return heap.free[d + (uint32_t)__builtin_ctz(bits)];
    }
    for (Block *b = heap.free[c]; b; b = b->next) // nothing larger: the rest of the class
        if (b->units >= units) return b;
    return NULL;
}

// Address of `size` bytes (> 0) aligned to 64, not cleared; 0 when memory cannot grow enough. `kind` is one of MEMORY_*.
// Addresses and sizes are f64 because JavaScript takes u64 only as bigint.
double EXPORT(vk_alloc)(double size, uint32_t kind) {
    if (!heap.first) heap_start();
    if (!(size < (double)MAX_PAGES * PAGE)) return 0;
    uint64_t bytes = (uint64_t)size;
    uint32_t units = (uint32_t)((bytes + UNIT - 1u) / UNIT) + 2u; // header, bytes, slack
    Block *b = find(units);
    if (!b) {
        if (!grow(units)) return 0;
        b = find(units);
    }
    list_remove(b);
    if (b->units > units + 1u) { // a rest of header and slack alone is of no use
        Block *rest = b + units;
        uint32_t rest_units = b->units - units;
        *rest = (Block){.before = units, .state = BLOCK_FREE};
        b->units = units;
        set_units(rest, rest_units);
        list_add(rest);
    }
    b->state = BLOCK_USED;
    b->kind = kind;
    b->bytes = bytes;
    if (kind == MEMORY_BUFFER) {
        heap.active += bytes;
        if (heap.active > heap.peak) heap.peak = heap.active;
    }
    return (double)(uintptr_t)(b + 1);
}

// 0, or -1 for an address that is no live block.
int32_t EXPORT(vk_free)(double at) {
    uintptr_t address = (uintptr_t)at;
    Block *b = (Block *)address - 1;
    if (!heap.first || address % UNIT || b < heap.first || b >= heap.end || b->state != BLOCK_USED) return -1;
    if (b->kind == MEMORY_BUFFER) heap.active -= b->bytes;
    give(b);
    return 0;
}

// Figures in bytes (MEMORY_*).
double EXPORT(vk_memory)(uint32_t figure) {
    uint64_t limit = (uint64_t)MAX_PAGES * PAGE - (uintptr_t)&__heap_base;
    switch (figure) {
        case MEMORY_ACTIVE: return (double)heap.active;
        case MEMORY_PEAK: return (double)heap.peak;
        case MEMORY_LIMIT: return (double)limit;
        default: return 0;
    }
}

void EXPORT(vk_memory_reset_peak)(void) { heap.peak = 0; }
