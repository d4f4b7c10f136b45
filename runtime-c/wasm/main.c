// The WASM executor: checks Plans (shaders/include/plan.h) and runs them by calling the kernel of each id.
//
// A run walks the Plan here, so JavaScript makes one call for many dispatches. Kernels get their spec words and push
// block in place, buffers as pointers; grids are of no use. Kernels that can be cut run on all threads of the pool, and a
// run may stop between their chunks. Nothing is kept between calls but the heap of memory.c.

#include "../../shaders/include/plan.h"
#include "kernel_table.h"
#include "quantized/packed_kernels.h"
#include "pool.h"

#include <wasm_simd128.h>

#define EXPORT(name) __attribute__((export_name(#name))) name

// The fault of a Plan: vk_plan_check returns -(code + PLAN_STATUSES * dispatch).
enum {
    PLAN_OK = 0,
    PLAN_BAD_HEADER = 1, // magic or word count
    PLAN_TRUNCATED = 2,  // a dispatch reaches past the end, or words are left over
    PLAN_BAD_KERNEL = 3, // no such kernel here
    PLAN_BAD_FLAGS = 4,
    PLAN_BAD_COUNTS = 5, // buffers, spec or push words differ from the kernel table
    PLAN_BAD_SLOT = 6,   // beyond the header's count, or none where the kernel needs a buffer
    PLAN_STATUSES = 8,
};

// One dispatch of a checked Plan.
typedef struct Dispatch {
    const KernelRow *kernel;
    const uint32_t *buffers, *spec, *push, *next;
} Dispatch;

static Dispatch dispatch_at(const uint32_t *words) {
    const KernelRow *kernel = &kernel_table[words[0] & 0xffffu];
    const uint32_t *buffers = words + PLAN_DISPATCH_WORDS;
    const uint32_t *spec = buffers + 2u * kernel->buffers, *push = spec + kernel->spec;
    return (Dispatch){kernel, buffers, spec, push, push + kernel->push_words};
}

// Status of the dispatch at `words`, of which `left` may be read; its length goes to *length.
static int32_t dispatch_check(const uint32_t *words, uint32_t left, uint32_t slots, uint32_t *length) {
    if (left < PLAN_DISPATCH_WORDS) return PLAN_TRUNCATED;
    uint32_t id = words[0] & 0xffffu;
    if (id >= kernel_count || !(kernel_table[id].run || kernel_table[id].chunks)) return PLAN_BAD_KERNEL;
    if (words[0] >> 16 & ~(PLAN_DISJOINT | PLAN_PREAMBLE)) return PLAN_BAD_FLAGS;
    const KernelRow *kernel = &kernel_table[id];
    uint32_t counts = kernel->buffers | (uint32_t)kernel->spec << 8 | (uint32_t)kernel->push_words << 16;
    if (words[1] != counts) return PLAN_BAD_COUNTS;
    *length = PLAN_DISPATCH_WORDS + 2u * kernel->buffers + kernel->spec + kernel->push_words;
    if (left < *length) return PLAN_TRUNCATED;
    for (uint32_t i = 0; i < kernel->buffers; i++) {
        uint32_t slot = words[PLAN_DISPATCH_WORDS + 2u * i];
        if (slot == PLAN_NO_SLOT ? !(kernel->optional >> i & 1u) : slot >= slots) return PLAN_BAD_SLOT;
    }
    return PLAN_OK;
}

uint32_t EXPORT(vk_abi)(void) { return kernel_abi_hash; }

// 0 when the engine does not compute relaxed dot products as the kernels expect. Some early engines validate the
// instruction and get it wrong. 2 when it has one instruction for the sum of four products, else 1. The operands are
// loaded from memory that the compiler cannot see through.
uint32_t EXPORT(vk_probe)(void) {
    static volatile const int8_t activations[16] = {-128, -128, -1, 5, 127, 127, 7, 0, 1, 2, 3, 4, -5, -6, -7, -8};
    static volatile const int8_t codes[16] = {15, 15, 0, 9, 15, 15, 127, 3, 15, 14, 13, 12, 0, 1, 2, 3};
    int8_t a[16], b[16];
    int32_t expected[4] = {10, 20, 30, 40}, got[4];
    int16_t pairs[8];
    for (int i = 0; i < 16; i++) a[i] = activations[i], b[i] = codes[i];
    v128_t x = wasm_v128_load(a), y = wasm_v128_load(b);
    wasm_v128_store(got, wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, y, wasm_v128_load(expected)));
    wasm_v128_store(pairs, wasm_i16x8_relaxed_dot_i8x16_i7x16(x, y));
    for (int i = 0; i < 16; i++) expected[i / 4] += a[i] * b[i];
    bool right = true;
    for (int i = 0; i < 4; i++) right = right && got[i] == expected[i];
    for (int i = 0; i < 8; i++) right = right && pairs[i] == a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    if (!right) return 0;
    // Codes above 127 tell: where pairs are added first, in 16 bits, their sums are cut off at 32,767.
    static volatile const uint8_t large = 255;
    v128_t quads = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(127), wasm_i8x16_splat((int8_t)large), wasm_i32x4_splat(0));
    return wasm_i32x4_extract_lane(quads, 0) == 2 * 32767 ? 1 : 2;
}

// How packed products add up: by quads or by pairs.
void EXPORT(vk_products)(uint32_t quads) { packed_quads = quads != 0; }

// Addresses are f64 where JavaScript gives them, as in memory.c.
static void *pointer(double address) { return (void *)(uintptr_t)address; }

// Strict check of a Plan against the kernel table; must pass before vk_plan_run.
int32_t EXPORT(vk_plan_check)(double words_at, uint32_t count) {
    const uint32_t *words = pointer(words_at);
    if (count < PLAN_HEADER_WORDS || words[0] != PLAN_MAGIC || words[3] != count) return -PLAN_BAD_HEADER;
    uint32_t at = PLAN_HEADER_WORDS, dispatches = words[2], length = 0;
    for (uint32_t i = 0; i < dispatches; i++, at += length) {
        int32_t status = dispatch_check(words + at, count - at, words[1], &length);
        if (status) return -(status + PLAN_STATUSES * (int32_t)(i < (1u << 27) ? i : 0));
    }
    return at == count ? PLAN_OK : -PLAN_TRUNCATED;
}

// How far a run of a Plan has come, stored before the addresses of its slots.
typedef struct Run {
    uint32_t dispatch, word, chunk; // the next dispatch, where it lies, its next chunk
    uint32_t unused;
    double slots[];
} Run;

// The part of a slice's budget that a kernel takes if it cannot be cut.
enum { WHOLE = 16 };

// Runs up to dispatch last - 1, or until chunks of about `budget` weight are done; returns the next dispatch. *run says
// where to go on.
uint32_t EXPORT(vk_plan_run)(double words_at, double run_at, uint32_t last, uint32_t budget) {
    const uint32_t *words = pointer(words_at);
    Run *run = pointer(run_at);
    if (run->dispatch == 0 && run->chunk == 0) run->word = PLAN_HEADER_WORDS;
    for (uint32_t spent = 0; run->dispatch < last && spent < budget;) {
        Dispatch d = dispatch_at(words + run->word);
        Call call = {.spec = d.spec, .push = d.push};
        for (uint32_t b = 0; b < d.kernel->buffers; b++) {
            uint32_t slot = d.buffers[2u * b], offset = d.buffers[2u * b + 1u];
            call.buffer[b] = slot == PLAN_NO_SLOT ? NULL : (uint8_t *)pointer(run->slots[slot]) + offset;
        }
        if (d.kernel->run) {
            d.kernel->run(&call);
            spent += WHOLE;
        } else {
            uint32_t weight = d.kernel->weight, left = (budget - spent - 1) / weight + 1, chunks = d.kernel->chunks(&call);
            uint32_t end = chunks - run->chunk > left ? run->chunk + left : chunks;
            pool_run(d.kernel->run_chunks, &call, run->chunk, end);
            spent += (end - run->chunk) * weight;
            run->chunk = end;
            if (end < chunks) break;
        }
        run->chunk = 0;
        run->dispatch++;
        run->word = (uint32_t)(d.next - words);
    }
    return run->dispatch;
}
