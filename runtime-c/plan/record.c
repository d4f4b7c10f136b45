// Plans into command buffers: barriers where hazards.c finds them, push constants, tables of addresses.

#include "plan/record.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "memory.h"
#include "plan/hazards.h"
#include "plan/profile.h"
#include "queue.h"

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define READ VK_ACCESS_2_SHADER_STORAGE_READ_BIT
#define WRITE VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT

static uint64_t address_of(const uint32_t *pair, const Binding *bindings) {
    return pair[0] == PLAN_NO_SLOT ? 0 : bindings[pair[0]].address + pair[1];
}

static Use use_of(const uint32_t *pair, const Binding *bindings, bool read, bool write) {
    return (Use){.slot = pair[0] == PLAN_NO_SLOT ? PLAN_NO_SLOT : bindings[pair[0]].hazard, .read = read, .write = write};
}

// State that recording carries from buffer to buffer.
typedef struct Progress {
    const Binding *bindings;
    Hazards hazards;
    Use *uses;
    uint32_t table;    // bytes of the recording's tables that are taken
    uint32_t opened;   // those of the preamble
    bool keeps_tables; // they are written already
    uint32_t barriers; // of the buffer
} Progress;

// The push constants of a dispatch. Its table of addresses is written where `table` bytes of the recording's tables are taken.
static uint32_t push_block(const Dispatch *dispatch, const Recording *r, Progress *p, uint32_t *block) {
    const KernelRow *row = dispatch->kernel;
    uint32_t at = 0;
    for (uint32_t i = 0; i < row->buffers; i++, at += 2) {
        uint64_t address = address_of(dispatch->buffers + 2 * i, p->bindings);
        memcpy(block + at, &address, sizeof address);
    }
    if (row->columns > 0) {
        uint64_t address = range_address(r->tables) + p->table;
        memcpy(block + at, &address, sizeof address);
        at += 2;
    }
    for (uint32_t i = 0; i < dispatch->rows * row->columns; i++, p->table += 8) {
        if (p->keeps_tables) continue;
        uint64_t address = address_of(dispatch->table + 2 * i, p->bindings);
        memcpy(range_mapped(r->tables) + p->table, &address, sizeof address);
    }
    memcpy(block + at, dispatch->push, 4u * row->push_words);
    return 4 * (at + row->push_words);
}

// Collects the buffers that a dispatch reads and writes; `uses` has room for them.
static uint32_t uses_of(const Dispatch *dispatch, const Binding *bindings, Use *uses) {
    const KernelRow *row = dispatch->kernel;
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->buffers; i++)
        uses[n++] = use_of(dispatch->buffers + 2 * i, bindings, row->reads >> i & 1, row->writes >> i & 1);
    for (uint32_t i = 0; i < dispatch->rows * row->columns; i++) {
        uint32_t column = i % row->columns;
        uses[n++] = use_of(dispatch->table + 2 * i, bindings, row->column_reads >> column & 1, row->column_writes >> column & 1);
    }
    return n;
}

// Dispatches `from` up to `to`, after a barrier.
static void record_dispatches(Device *d, VkCommandBuffer commands, const Plan *plan, uint32_t from, uint32_t to, Recording *r,
                              Progress *p) {
    VkPipeline bound = VK_NULL_HANDLE;
    p->hazards.epoch++;
    for (uint32_t i = from; i < to; i++) {
        const Dispatch *dispatch = &plan->dispatch[i];
        uint32_t block[PUSH_BYTES / 4];
        uint32_t bytes = push_block(dispatch, r, p, block);
        bool barrier = hazards_next(&p->hazards, p->uses, uses_of(dispatch, p->bindings, p->uses), dispatch->disjoint);
        if (barrier || (r->queries && i > 0)) // timed dispatches stand alone
            commands_barrier(d, commands, COMPUTE, WRITE, COMPUTE, READ | WRITE);
        p->barriers += barrier;
        if (dispatch->pipeline != bound) {
            bound = dispatch->pipeline;
            d->vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, bound);
        }
        d->vk.CmdPushConstants(commands, d->pipelines.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, block);
        profile_mark(d, commands, r, 2 * i);
        d->vk.CmdDispatch(commands, dispatch->grid[0], dispatch->grid[1], dispatch->grid[2]);
        profile_mark(d, commands, r, 2 * i + 1);
    }
}

int32_t record_begin(Device *d, VkCommandBuffer commands) {
    TRY(commands_begin(d, commands, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT));
    commands_barrier(d, commands, COMPUTE | VK_PIPELINE_STAGE_2_COPY_BIT, WRITE | VK_ACCESS_2_TRANSFER_WRITE_BIT, COMPUTE, READ | WRITE);
    return VKRT_OK;
}

// Some runs of the dispatches from `from` on, which the host sees where it can see a slot.
static int32_t record_runs(Device *d, VkCommandBuffer commands, const Plan *plan, uint32_t from, uint32_t runs, Recording *r, Progress *p) {
    bool host = false;
    for (uint32_t i = 0; i < plan->slots; i++) host = host || (p->bindings[i].range && p->bindings[i].range->chunk->mapped);
    TRY(record_begin(d, commands));
    profile_reset(d, commands, r, plan->dispatches);
    p->barriers = 1 + host;
    for (uint32_t run = 0; run < runs; run++) {
        if (run > 0) commands_barrier(d, commands, COMPUTE, WRITE, COMPUTE, READ | WRITE);
        p->table = from > 0 ? p->opened : 0;
        record_dispatches(d, commands, plan, from, plan->dispatches, r, p);
    }
    if (host) commands_barrier(d, commands, COMPUTE, WRITE, VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT);
    return VK(d, EndCommandBuffer, commands);
}

// Memory for the tables of addresses that the host may write: the earlier content is no longer read.
static int32_t tables_new(Device *d, const Plan *plan, Recording *r) {
    if (plan->table_entries == 0) return VKRT_OK;
    TRY(range_new(d, POOL_VISIBLE, 8ull * plan->table_entries, true, &r->tables));
    return queue_wait_uses(d, &r->tables->uses);
}

static void progress_free(Progress *p) {
    free(p->hazards.slots);
    free(p->uses);
}

// Two slots bound to the same place are one for hazards: each takes the number of the first such slot, found by hashing.
static int32_t find_aliases(Device *d, Plan *plan) {
    Binding *bindings = plan->bindings;
    uint32_t places = 16;
    while (places < plan->slots * 2) places *= 2;
    uint32_t *table = calloc(places, sizeof *table); // slot + 1; 0: empty
    if (!table) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    for (uint32_t i = 0; i < plan->slots; i++) {
        uint64_t address = bindings[i].address;
        uint32_t at = (uint32_t)((address >> 2) * 0x9e3779b97f4a7c15u >> 32) & (places - 1);
        while (table[at] && bindings[table[at] - 1].address != address) at = (at + 1) & (places - 1);
        if (!table[at]) table[at] = i + 1;
        bindings[i].hazard = table[at] - 1;
    }
    free(table);
    return VKRT_OK;
}

// Begins to record a bound Plan.
static int32_t progress_new(Device *d, Plan *plan, Progress *p) {
    TRY(find_aliases(d, plan));
    *p = (Progress){.bindings = plan->bindings, .hazards = {.slots = calloc((size_t)plan->slots + 1, sizeof(SlotHazard)), .epoch = 1}};
    for (uint32_t i = 0; i < plan->preamble; i++) p->opened += 8 * plan->dispatch[i].rows * plan->dispatch[i].kernel->columns;
    p->uses = malloc((PLAN_MAX_BUFFERS + (size_t)plan->table_entries) * sizeof *p->uses);
    if (p->hazards.slots && p->uses) return VKRT_OK;
    progress_free(p);
    return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
}

int32_t record_first(Device *d, Plan *plan, Recording *r) {
    TRY(tables_new(d, plan, r));
    Progress p;
    TRY(progress_new(d, plan, &p));
    int32_t status = record_runs(d, r->commands, plan, 0, 1, r, &p);
    r->barriers = p.barriers;
    progress_free(&p);
    return status;
}

static int32_t record_preamble(Device *d, const Plan *plan, Recording *r, Progress *p) {
    if (!r->preamble) TRY(commands_new(d, &r->preamble));
    TRY(record_begin(d, r->preamble));
    record_dispatches(d, r->preamble, plan, 0, plan->preamble, r, p);
    r->opens = true;
    return VK(d, EndCommandBuffer, r->preamble);
}

static int32_t record_wanted(Device *d, const Plan *plan, Recording *r, uint32_t wanted, Progress *p) {
    if (plan->preamble > 0 && !r->opens) TRY(record_preamble(d, plan, r, p));
    for (uint32_t i = 0; i < RUNS; i++) {
        if (!((wanted & ~r->recorded) >> i & 1)) continue;
        if (!r->runs[i]) TRY(commands_new(d, &r->runs[i]));
        TRY(record_runs(d, r->runs[i], plan, plan->preamble, 1u << i, r, p));
        r->recorded |= 1u << i;
    }
    return VKRT_OK;
}

int32_t record_more(Device *d, Plan *plan, Recording *r, uint32_t wanted) {
    if ((wanted & ~r->recorded) == 0 && (plan->preamble == 0 || r->opens)) return VKRT_OK;
    Progress p;
    TRY(progress_new(d, plan, &p));
    p.keeps_tables = true;
    int32_t status = record_wanted(d, plan, r, wanted, &p);
    progress_free(&p);
    return status;
}

int32_t record_into(Device *d, VkCommandBuffer commands, Plan *plan, Recording *r) {
    Progress p;
    TRY(progress_new(d, plan, &p));
    p.keeps_tables = true;
    record_dispatches(d, commands, plan, 0, plan->dispatches, r, &p);
    progress_free(&p);
    return VKRT_OK;
}
