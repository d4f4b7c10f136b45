// See pool.h.

#include "pool.h"
#include "simd.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

#ifndef __wasm_atomics__

void pool_run(void (*run_chunks)(const Call *call, uint32_t first, uint32_t last), const Call *call, uint32_t first, uint32_t last) {
    if (first < last) run_chunks(call, first, last);
}

#else

#include <stdatomic.h>

// Rounds of looking at the fork, about 100 us, before a worker sleeps, or the caller, which waits for chunks of
// preempted workers. And the nanoseconds until the caller looks again.
enum { SPIN = 20000, NAP = 1000000 };

// Bits of `fork`: workers inside, whether it may be entered, number of the fork.
enum { INSIDE = 0xff, OPEN = 0x100, NEXT = 0x200 };

// Chunks of a fork that one thread takes in order, and others once they have none of their own.
typedef struct Range {
    _Alignas(64) _Atomic uint32_t next;
    uint32_t end;
} Range;

enum { MAX_RANGES = 64, BATCHES = 8 };

typedef struct Shared {
    _Alignas(64) _Atomic uint32_t fork;
    _Alignas(64) _Atomic uint32_t sleeping;
    _Atomic uint32_t wake; // changes when sleepers must look again
    _Atomic uint32_t stop;
    _Atomic uint32_t workers;
    _Atomic uint32_t waiting; // whether the caller sleeps until the workers inside have left
    // The work of an open fork; written only while none is inside.
    _Alignas(64) void (*run_chunks)(const Call *call, uint32_t first, uint32_t last);
    const Call *call;
    uint32_t ranges;
    Range range[MAX_RANGES];
} Shared;

static Shared shared;

static void take_chunks(uint32_t thread) {
    for (uint32_t i = 0; i < shared.ranges; i++) {
        Range *range = &shared.range[(thread + i) % shared.ranges];
        for (;;) {
            // Several at once while there are many left, single ones at the end, where threads wait for each other.
            uint32_t next = atomic_load_explicit(&range->next, memory_order_relaxed);
            uint32_t count = next < range->end ? 1 + (range->end - next) / BATCHES : 1;
            uint32_t first = atomic_fetch_add_explicit(&range->next, count, memory_order_relaxed);
            if (first >= range->end) break;
            shared.run_chunks(shared.call, first, min_u32(first + count, range->end));
        }
    }
}

static void wake_sleepers(void) {
    atomic_fetch_add(&shared.wake, 1);
    __builtin_wasm_memory_atomic_notify((int32_t *)&shared.wake, ~0u);
}

void pool_run(void (*run_chunks)(const Call *call, uint32_t first, uint32_t last), const Call *call, uint32_t first, uint32_t last) {
    if (first >= last) return;
    uint32_t ranges = min_u32(1 + atomic_load_explicit(&shared.workers, memory_order_relaxed), MAX_RANGES);
    ranges = min_u32(ranges, last - first);
    if (ranges == 1) {
        run_chunks(call, first, last);
        return;
    }
    shared.run_chunks = run_chunks, shared.call = call, shared.ranges = ranges;
    for (uint32_t i = 0; i < ranges; i++) {
        Range *range = &shared.range[i];
        range->end = first + (uint32_t)((uint64_t)(last - first) * (i + 1) / ranges);
        uint32_t start = first + (uint32_t)((uint64_t)(last - first) * i / ranges);
        atomic_store_explicit(&range->next, start, memory_order_relaxed);
    }
    uint32_t number = atomic_load_explicit(&shared.fork, memory_order_relaxed) & ~(uint32_t)(NEXT - 1);
    atomic_store(&shared.fork, (number + NEXT) | OPEN);
    if (atomic_load(&shared.sleeping)) wake_sleepers();
    take_chunks(0);
    atomic_fetch_and(&shared.fork, ~(uint32_t)OPEN);
    for (uint32_t idle = 0, fork; (fork = atomic_load_explicit(&shared.fork, memory_order_acquire)) & INSIDE;) {
        if (++idle < SPIN) continue;
        atomic_store(&shared.waiting, 1);
        __builtin_wasm_memory_atomic_wait32((int32_t *)&shared.fork, (int32_t)fork, NAP);
        atomic_store(&shared.waiting, 0);
    }
}

// Body of a worker; returns after vk_pool_stop.
static __attribute__((noinline)) void work(void) {
    uint32_t done = 0; // number of the last fork this worker was in
    uint32_t thread = atomic_fetch_add(&shared.workers, 1) + 1;
    for (uint32_t idle = 0;;) {
        uint32_t fork = atomic_load_explicit(&shared.fork, memory_order_acquire);
        if (fork & OPEN && fork / NEXT != done) {
            if (!atomic_compare_exchange_strong(&shared.fork, &fork, fork + 1)) continue;
            take_chunks(thread);
            atomic_fetch_sub(&shared.fork, 1);
            if (atomic_load(&shared.waiting)) __builtin_wasm_memory_atomic_notify((int32_t *)&shared.fork, ~0u);
            done = fork / NEXT;
            idle = 0;
        } else if (++idle > SPIN) {
            uint32_t wake = atomic_load(&shared.wake);
            if (atomic_load(&shared.stop)) break;
            atomic_fetch_add(&shared.sleeping, 1);
            // Not if a fork has opened since; the caller sees `sleeping` after it opens one.
            fork = atomic_load(&shared.fork);
            if (!(fork & OPEN && fork / NEXT != done)) { __builtin_wasm_memory_atomic_wait32((int32_t *)&shared.wake, (int32_t)wake, -1); }
            atomic_fetch_sub(&shared.sleeping, 1);
            idle = 0;
        }
    }
    atomic_fetch_sub(&shared.workers, 1);
}

// Turns the calling thread into a worker, on a stack of its own that ends at `stack`.
void EXPORT(vk_worker)(double stack_at) {
    uintptr_t stack = (uintptr_t)stack_at;
    __asm__ volatile(".globaltype __stack_pointer, i64\n"
                     "local.get %0\n"
                     "global.set __stack_pointer"
                     :
                     : "r"(stack)
                     : "memory");
    work();
}

// Lets the workers return.
void EXPORT(vk_pool_stop)(void) {
    atomic_store(&shared.stop, 1);
    wake_sleepers();
}

// Workers that have come up.
uint32_t EXPORT(vk_pool_workers)(void) { return atomic_load(&shared.workers); }

#endif
