// From Plan words to dispatches. The words come from outside and nothing in them is trusted. Before anything is
// created, every count is compared with the words that are left. Every id, slot and grid is compared with the kernel
// table and the device.

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "device/facts.h"
#include "failure.h"
#include "plan/pipelines.h"
#include "plan/recording.h"

typedef struct Reader {
    Device *d;
    const uint32_t *words;
    uint32_t count, at, slots;
} Reader;

static int32_t check_counts(const Reader *r, uint32_t number, const KernelRow *row, uint32_t counts) {
    uint32_t buffers = counts & 0xff, spec = counts >> 8 & 0xff, push = counts >> 16;
    if (buffers != row->buffers || spec != row->spec || push != row->push_words)
        return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u: %s takes %u buffers, %u constants and %u push words: found %u, %u and %u", number,
                    row->name, row->buffers, row->spec, row->push_words, buffers, spec, push);
    if (row->buffers > PLAN_MAX_BUFFERS || row->spec > PLAN_MAX_SPEC ||
        row->buffers * 8u + (row->columns > 0) * 8u + row->push_words * 4u > PUSH_BYTES)
        return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u: %s passes the limits of a Plan", number, row->name);
    if (PLAN_DISPATCH_WORDS + buffers * 2 + spec + push > r->count - r->at)
        return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s) runs past the end of the Plan", number, row->name);
    return VKRT_OK;
}

static int32_t check_grid(const Reader *r, uint32_t number, const KernelRow *row, const uint32_t *grid) {
    const VkPhysicalDeviceLimits *limits = &r->d->facts.core.limits;
    for (uint32_t axis = 0; axis < 3; axis++)
        if (grid[axis] > limits->maxComputeWorkGroupCount[axis])
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): %u workgroups along %c, the device allows %u", number, row->name,
                        grid[axis], "xyz"[axis], limits->maxComputeWorkGroupCount[axis]);
    return VKRT_OK;
}

static int32_t check_threads(const Reader *r, uint32_t number, const KernelRow *row, const uint32_t *spec) {
    const VkPhysicalDeviceLimits *limits = &r->d->facts.core.limits;
    if (row->spec == 0) return VKRT_OK;
    uint32_t most = limits->maxComputeWorkGroupInvocations;
    for (uint32_t axis = 0, threads = 1; axis < row->axes; axis++) {
        uint32_t longest = limits->maxComputeWorkGroupSize[axis] < most ? limits->maxComputeWorkGroupSize[axis] : most;
        if (spec[axis] == 0 || spec[axis] > longest)
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): %u threads in a workgroup along %c, the device allows 1 to %u", number,
                        row->name, spec[axis], "xyz"[axis], longest);
        threads *= spec[axis]; // of at most 32 bits: the product before is at most `most`
        if (threads > most)
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): %u threads in a workgroup, the device allows %u", number, row->name,
                        threads, most);
    }
    return VKRT_OK;
}

static int32_t check_buffers(const Reader *r, uint32_t number, const KernelRow *row, const uint32_t *buffers) {
    for (uint32_t i = 0; i < row->buffers; i++) {
        uint32_t slot = buffers[2 * i];
        if (slot < r->slots) continue;
        if (slot != PLAN_NO_SLOT)
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): buffer %u is in slot %u of %u", number, row->name, i, slot, r->slots);
        if (!(row->optional >> i & 1))
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): buffer %u must be bound", number, row->name, i);
    }
    return VKRT_OK;
}

// The table that a dispatch carries if its kernel has columns.
static int32_t read_table(Reader *r, uint32_t number, Dispatch *out) {
    const KernelRow *row = out->kernel;
    uint32_t rows = r->at < r->count ? r->words[r->at++] : PLAN_MAX_ROWS + 1;
    if (rows > PLAN_MAX_ROWS || 2u * rows * row->columns > r->count - r->at)
        return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): its table runs past the end of the Plan or has more than %u rows", number,
                    row->name, PLAN_MAX_ROWS);
    out->rows = rows;
    out->table = r->words + r->at;
    for (uint32_t i = 0; i < rows * row->columns; i++)
        if (out->table[2 * i] >= r->slots)
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): entry %u of its table is in slot %u of %u", number, row->name, i,
                        out->table[2 * i], r->slots);
    r->at += 2u * rows * row->columns;
    return VKRT_OK;
}

// Checks the dispatch at r->at, fills `out` except its pipeline, and advances past it.
static int32_t read_dispatch(Reader *r, uint32_t number, Dispatch *out) {
    if (r->count - r->at < PLAN_DISPATCH_WORDS) return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u runs past the end of the Plan", number);
    const uint32_t *w = r->words + r->at;
    uint32_t id = w[0] & 0xffff, flags = w[0] >> 16;
    const KernelRow *row = kernel_find(r->d, id);
    if (!row) return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u: there is no kernel %u", number, id);
    const char *missing = id < kernel_count ? kernel_missing(row, &r->d->facts) : NULL;
    if (missing) return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u: kernel %s cannot run here: %s", number, row->name, missing);
    if (flags & ~(PLAN_DISJOINT | PLAN_PREAMBLE))
        return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u (%s): unknown flags %x", number, row->name, flags);
    TRY(check_counts(r, number, row, w[1]));
    TRY(check_grid(r, number, row, w + 2));
    *out = (Dispatch){.kernel = row,
                      .id = id,
                      .grid = {w[2], w[3], w[4]},
                      .disjoint = (flags & PLAN_DISJOINT) != 0,
                      .preamble = (flags & PLAN_PREAMBLE) != 0};
    out->buffers = w + PLAN_DISPATCH_WORDS;
    out->spec = out->buffers + 2 * row->buffers;
    out->push = out->spec + row->spec;
    TRY(check_buffers(r, number, row, out->buffers));
    TRY(check_threads(r, number, row, out->spec));
    r->at += PLAN_DISPATCH_WORDS + 2u * row->buffers + row->spec + row->push_words;
    return row->columns > 0 ? read_table(r, number, out) : VKRT_OK;
}

// Buffers that dispatches read and write.
static void note_access(Plan *plan, const uint32_t *pair, bool read, bool write) {
    if (pair[0] != PLAN_NO_SLOT) plan->access[pair[0]] |= (uint8_t)(read | write << 1);
}

static void note_reach(Plan *plan, const uint32_t *pairs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = pairs[2 * i];
        if (slot == PLAN_NO_SLOT) continue;
        uint64_t reach = (uint64_t)pairs[2 * i + 1] + 1;
        if (reach > plan->reach[slot]) plan->reach[slot] = reach;
    }
}

// All of the Plan is checked before the first pipeline is made.
static int32_t read_plan(Reader *r, Plan *plan) {
    for (uint32_t i = 0; i < plan->dispatches; i++) {
        Dispatch *dispatch = &plan->dispatch[i];
        TRY(read_dispatch(r, i, dispatch));
        if (dispatch->preamble && plan->preamble++ < i)
            return fail(r->d, VKRT_ERROR_PLAN, "dispatch %u opens runs after one that does not", i);
        uint32_t entries = dispatch->rows * dispatch->kernel->columns;
        note_reach(plan, dispatch->buffers, dispatch->kernel->buffers);
        note_reach(plan, dispatch->table, entries);
        const KernelRow *row = dispatch->kernel;
        for (uint32_t b = 0; b < row->buffers; b++) note_access(plan, dispatch->buffers + 2 * b, row->reads >> b & 1, row->writes >> b & 1);
        for (uint32_t e = 0; e < entries; e++)
            note_access(plan, dispatch->table + 2 * e, row->column_reads >> e % row->columns & 1,
                        row->column_writes >> e % row->columns & 1);
        plan->table_entries += entries;
    }
    if (r->at != r->count) return fail(r->d, VKRT_ERROR_PLAN, "%u words follow the last dispatch", r->count - r->at);
    return pipelines_make(r->d, plan->dispatch, plan->dispatches);
}

static int32_t check_header(Device *d, const uint32_t *words, uint32_t count) {
    if (count < PLAN_HEADER_WORDS || words[0] != PLAN_MAGIC)
        return fail(d, VKRT_ERROR_PLAN, "these %u words are no Plan: they begin with %08x instead of %08x", count, count ? words[0] : 0,
                    PLAN_MAGIC);
    if (words[3] != count) return fail(d, VKRT_ERROR_PLAN, "the Plan has %u words, its header says %u", count, words[3]);
    if (words[1] > count || words[2] > count / PLAN_DISPATCH_WORDS)
        return fail(d, VKRT_ERROR_PLAN, "the header counts %u slots and %u dispatches in %u words", words[1], words[2], count);
    return VKRT_OK;
}

int32_t plan_new(Device *d, const uint32_t *words, uint32_t count, Plan **out) {
    TRY(check_header(d, words, count));
    Plan *plan = calloc(1, sizeof *plan);
    if (!plan) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    plan->slots = words[1];
    plan->dispatches = words[2];
    plan->words = malloc(4 * (size_t)count);
    plan->dispatch = calloc((size_t)plan->dispatches + 1, sizeof *plan->dispatch); // + 1: no zero sizes
    plan->reach = calloc((size_t)plan->slots + 1, sizeof *plan->reach);
    plan->access = calloc((size_t)plan->slots + 1, sizeof *plan->access);
    plan->bound = calloc((size_t)plan->slots + 1, 4 * sizeof *plan->bound);
    plan->bindings = calloc((size_t)plan->slots + 1, sizeof *plan->bindings);
    int32_t status = VKRT_OK;
    if (!plan->words || !plan->dispatch || !plan->reach || !plan->access || !plan->bound || !plan->bindings) {
        status = fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    } else {
        memcpy(plan->words, words, 4 * (size_t)count);
        Reader reader = {.d = d, .words = plan->words, .count = count, .at = PLAN_HEADER_WORDS, .slots = plan->slots};
        status = read_plan(&reader, plan);
    }
    if (status != VKRT_OK) plan_free(d, plan);
    else *out = plan;
    return status;
}

int32_t plan_prepare(Device *d, const uint32_t *words, uint32_t count) {
    Plan *plan;
    TRY(plan_new(d, words, count, &plan));
    plan_free(d, plan);
    return VKRT_OK;
}

void plan_free(Device *d, Plan *plan) {
    for (uint32_t i = 0; i < RECORDINGS; i++)
        if (plan->recordings[i]) recording_retire(d, plan->recordings[i]);
    free(plan->words);
    free(plan->dispatch);
    free(plan->reach);
    free(plan->access);
    free(plan->bound);
    free(plan->bindings);
    free(plan);
}
