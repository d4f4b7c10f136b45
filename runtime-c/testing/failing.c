// Exports of a test build alone: allocations that fail on demand, the count of live blocks, and planted bugs. A run
// under sanitizers uses the bugs to show that it can fail.

#include "failing.h"
#undef malloc
#undef calloc
#undef realloc
#undef free

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static _Atomic uint64_t asked, first, last;
static _Atomic int64_t live;

static int refused(void) {
    uint64_t number = atomic_fetch_add(&asked, 1);
    return number >= atomic_load(&first) && number < atomic_load(&last);
}

static void *counted(void *block) {
    if (block) atomic_fetch_add(&live, 1);
    return block;
}

void *test_malloc(size_t bytes) { return refused() ? NULL : counted(malloc(bytes)); }
void *test_calloc(size_t count, size_t bytes) { return refused() ? NULL : counted(calloc(count, bytes)); }

void *test_realloc(void *block, size_t bytes) {
    if (refused()) return NULL;
    void *moved = realloc(block, bytes);
    return block ? moved : counted(moved);
}

void test_free(void *block) {
    if (block) atomic_fetch_sub(&live, 1);
    free(block);
}

// From now on allocations are counted from 0; `count` of them fail from number `from` on.
API void vkrt_test_fail(uint32_t from, uint32_t count) {
    atomic_store(&asked, 0);
    atomic_store(&first, from);
    atomic_store(&last, (uint64_t)from + count);
}

API uint32_t vkrt_test_asked(void) { return (uint32_t)atomic_load(&asked); }
API int32_t vkrt_test_live(void) { return (int32_t)atomic_load(&live); }

static volatile int32_t sink;
static void *volatile kept;

// One mistake of each kind.
API int32_t vkrt_test_plant(uint32_t which) {
    volatile int32_t largest = INT32_MAX;
    volatile uint32_t shift = 40;
    uint8_t *volatile block = malloc(64);
    if (!block) return -1;
    memset(block, 1, 64);
    switch (which) {
        case 0: sink = block[64]; break; // after its end
        case 1:
            free(block);
            sink = block[3];
            return sink;
        case 2: block[-1] = 1; break;
        case 3: sink = largest + 1; break;
        case 4: sink = 1 << shift; break;
        case 5: sink = *(volatile int32_t *)(block + 1); break; // not aligned
        case 6: test_malloc(8); break;                          // and forgotten
        default: break;
    }
    kept = block;
    free(block);
    return sink;
}
