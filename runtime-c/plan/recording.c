// Recording, submitting and replaying Plans.
//
// A Plan keeps a few recordings, one for each recent set of places that its slots were bound to. Other buffers at the
// same addresses are the same places. A recording is self-contained. It begins with a barrier against everything
// submitted before. It ends with a barrier for the host if the host can see a slot. So recordings may be replayed in
// any order, even while they are still running. A Plan whose first dispatches open many runs in a row has three command
// buffers: those dispatches, one run, and some runs together. A GPU idles for longer between two buffers than at a
// barrier.

#include "plan/recording.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "plan/hazards.h"
#include "memory.h"
#include "plan/profile.h"
#include "queue.h"

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define READ VK_ACCESS_2_SHADER_STORAGE_READ_BIT
#define WRITE VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT
#define TOGETHER 8u

// ---- recordings -----------------------------------------------------------------------------------------------------

// Retired recordings that the device has finished give their command buffers to new ones.
static Recording *take_retired(Device *d) {
    for (Recording **at = &d->retired; *at; at = &(*at)->next) {
        Recording *r = *at;
        if (!queue_done(d, &r->uses)) continue;
        *at = r->next;
        return r;
    }
    return NULL;
}

static void recording_clear(Device *d, Recording *r) {
    if (r->queries) d->vk.DestroyQueryPool(d->device, r->queries, NULL);
    free(r->places);
    *r = (Recording){.commands = r->commands, .preamble = r->preamble, .together = r->together};
}

static int32_t recording_new(Device *d, Recording **out) {
    Recording *r = take_retired(d);
    if (r) {
        recording_clear(d, r);
    } else {
        r = calloc(1, sizeof *r);
        if (!r) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
        int32_t status = commands_new(d, &r->commands);
        if (status != VKRT_OK) {
            free(r);
            return status;
        }
    }
    *out = r;
    return VKRT_OK;
}

void recording_retire(Device *d, Recording *recording) {
    if (recording->tables) range_free(d, recording->tables);
    recording->tables = NULL;
    recording->next = d->retired;
    d->retired = recording;
}

void recordings_deinit(Device *d) {
    for (Recording *r = d->retired, *next; r; r = next) {
        next = r->next;
        recording_clear(d, r); // its command buffer goes with the pool
        free(r);
    }
    d->retired = NULL;
}

// ---- recording ------------------------------------------------------------------------------------------------------

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
    bool keeps_tables; // they are written already
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
        r->barriers += barrier;
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

// Begins a command buffer that may follow anything.
int32_t plan_begin(Device *d, VkCommandBuffer commands) {
    TRY(commands_begin(d, commands, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT));
    commands_barrier(d, commands, COMPUTE | VK_PIPELINE_STAGE_2_COPY_BIT, WRITE | VK_ACCESS_2_TRANSFER_WRITE_BIT, COMPUTE, READ | WRITE);
    return VKRT_OK;
}

// Starts runs.
static int32_t record_preamble(Device *d, const Plan *plan, Recording *r, Progress *p) {
    if (!r->preamble) TRY(commands_new(d, &r->preamble));
    TRY(plan_begin(d, r->preamble));
    record_dispatches(d, r->preamble, plan, 0, plan->preamble, r, p);
    return VK(d, EndCommandBuffer, r->preamble);
}

// Some runs, which the host sees where it can see a slot.
static int32_t record_runs(Device *d, VkCommandBuffer commands, const Plan *plan, uint32_t runs, Recording *r, Progress *p) {
    uint32_t table = p->table;
    bool host = false;
    for (uint32_t i = 0; i < plan->slots; i++) host = host || (p->bindings[i].range && p->bindings[i].range->chunk->mapped);
    TRY(plan_begin(d, commands));
    profile_reset(d, commands, r, plan->dispatches);
    r->barriers = 1 + host;
    for (uint32_t run = 0; run < runs; run++) {
        if (run > 0) commands_barrier(d, commands, COMPUTE, WRITE, COMPUTE, READ | WRITE);
        p->table = table;
        record_dispatches(d, commands, plan, r->opens ? plan->preamble : 0, plan->dispatches, r, p);
    }
    if (host) commands_barrier(d, commands, COMPUTE, WRITE, VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT);
    return VK(d, EndCommandBuffer, commands);
}

static int32_t record_all(Device *d, const Plan *plan, Recording *r, Progress *p) {
    r->opens = plan->preamble > 0 && !r->queries; // timed runs are whole
    if (r->opens) {
        TRY(record_preamble(d, plan, r, p));
        uint32_t table = p->table;
        if (!r->together) TRY(commands_new(d, &r->together));
        TRY(record_runs(d, r->together, plan, TOGETHER, r, p));
        p->table = table;
    }
    return record_runs(d, r->commands, plan, 1, r, p);
}

// Memory for the tables of addresses that the host may write: the earlier content is no longer read.
static int32_t tables_new(Device *d, const Plan *plan, Recording *r) {
    if (plan->table_entries == 0) return VKRT_OK;
    TRY(range_new(d, POOL_HOST, 8ull * plan->table_entries, true, &r->tables));
    return queue_wait_uses(d, &r->tables->uses);
}

static int32_t progress_new(Device *d, const Plan *plan, Progress *p) {
    *p = (Progress){.bindings = plan->bindings, .hazards = {.slots = calloc((size_t)plan->slots + 1, sizeof(SlotHazard)), .epoch = 1}};
    p->uses = malloc((PLAN_MAX_BUFFERS + (size_t)plan->table_entries) * sizeof *p->uses);
    return p->hazards.slots && p->uses ? VKRT_OK : fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
}

static void progress_free(Progress *p) {
    free(p->hazards.slots);
    free(p->uses);
}

static int32_t record(Device *d, const Plan *plan, Recording *r) {
    TRY(tables_new(d, plan, r));
    Progress p;
    int32_t status = progress_new(d, plan, &p);
    if (status == VKRT_OK) status = record_all(d, plan, r, &p);
    progress_free(&p);
    return status;
}

int32_t plan_record(Device *d, VkCommandBuffer commands, const Plan *plan, Recording *r) {
    Progress p;
    uint32_t barriers = r->barriers;
    int32_t status = progress_new(d, plan, &p);
    p.keeps_tables = true;
    if (status == VKRT_OK) record_dispatches(d, commands, plan, 0, plan->dispatches, r, &p);
    r->barriers = barriers; // of its own buffer
    progress_free(&p);
    return status;
}

// ---- running --------------------------------------------------------------------------------------------------------

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

// Binds slots that are not bound to these buffers already. A buffer stays at its address until it is freed. Checking
// hundreds of weights again would take longer than the rest of a run.
static int32_t bind(Device *d, Plan *plan, const uint32_t *slots) {
    for (uint32_t i = 0; i < plan->slots; i++) {
        if (plan->reach[i] == 0) continue;
        const uint32_t *slot = slots + 4 * i;
        uint32_t *bound = plan->bound + 4 * i;
        const Buffer *buffer = handle_get(&d->buffers, slot[0]);
        if (buffer && memcmp(slot, bound, 3 * sizeof *slot) == 0) continue;
        if (!buffer) return fail(d, VKRT_ERROR_HANDLE, "slot %u is bound to buffer %08x, which is not there", i, slot[0]);
        uint64_t offset = slot[1] | (uint64_t)slot[2] << 32;
        if (offset >= buffer->bytes || plan->reach[i] > buffer->bytes - offset)
            return fail(d, VKRT_ERROR_ARGUMENT, "slot %u begins at byte %llu and reaches to %llu in a buffer of %llu bytes", i,
                        (unsigned long long)offset, (unsigned long long)(offset + plan->reach[i]), (unsigned long long)buffer->bytes);
        uint64_t address = range_address(buffer->range) + offset;
        plan->bindings[i] =
            (Binding){.address = address, .place = address | (buffer->range->chunk->mapped ? 1 : 0), .range = buffer->range};
        memcpy(bound, slot, 3 * sizeof *slot);
    }
    return VKRT_OK;
}

static bool fits(const Device *d, const Plan *plan, const Recording *r) {
    bool same = r->valid && (r->queries != VK_NULL_HANDLE) == (d->profile && plan->dispatches > 0);
    for (uint32_t i = 0; same && i < plan->slots; i++) same = r->places[i] == plan->bindings[i].place;
    return same;
}

// Moves recording `i` to the front.
static Recording *promote(Plan *plan, uint32_t i) {
    Recording *r = plan->recordings[i];
    for (; i > 0; i--) plan->recordings[i] = plan->recordings[i - 1];
    plan->recordings[0] = r;
    return r;
}

// A recording for a new binding; the least recently used one makes room, and its command buffer serves again once it is done.
static int32_t recording_make(Device *d, Plan *plan, Recording **out) {
    uint32_t last = 0;
    while (last < RECORDINGS - 1 && plan->recordings[last]) last++;
    if (plan->recordings[last]) {
        if (plan->profiled == plan->recordings[last]) plan->profiled = NULL;
        recording_retire(d, plan->recordings[last]);
        plan->recordings[last] = NULL;
    }
    TRY(recording_new(d, &plan->recordings[last]));
    Recording *r = promote(plan, last);
    r->places = malloc(8 * (size_t)plan->slots + 1);
    if (!r->places) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    for (uint32_t i = 0; i < plan->slots; i++) r->places[i] = plan->bindings[i].place;
    if (d->profile && plan->dispatches > 0) TRY(profile_prepare(d, r, plan->dispatches));
    TRY(find_aliases(d, plan));
    TRY(record(d, plan, r));
    r->valid = true;
    *out = r;
    return VKRT_OK;
}

// The command buffers of `times` runs.
static uint32_t buffers_of(const Recording *r, uint32_t times, VkCommandBuffer *out) {
    uint32_t count = 0;
    if (r->opens) {
        out[count++] = r->preamble;
        for (; times >= TOGETHER; times -= TOGETHER) out[count++] = r->together;
    }
    for (; times > 0; times--) out[count++] = r->commands;
    return count;
}

// The work of other streams that a run on `stream` must wait for.
int32_t plan_behind(Device *d, const Plan *plan, uint32_t stream, Uses *behind) {
    if (atomic_load(&d->opened) == 1) return VKRT_OK;
    for (uint32_t i = 0; i < plan->slots; i++)
        if (plan->bindings[i].range && plan->access[i]) queue_behind(d, stream, plan->bindings[i].range, plan->access[i] & 2, behind);
    // Open copies are waited for once they are submitted.
    return stream != 0 && behind->at[0] == queue_next_ticket(d) ? queue_flush(d) : VKRT_OK;
}

static void note_use(Range *range, uint32_t stream, uint64_t ticket, bool write) {
    range->uses.at[stream] = ticket_value(ticket);
    if (write) range->written = ticket;
}

int32_t plan_bind(Device *d, Plan *plan, const uint32_t *slots, Recording **out) {
    TRY(bind(d, plan, slots));
    for (uint32_t i = 0; i < RECORDINGS && plan->recordings[i]; i++) {
        if (!fits(d, plan, plan->recordings[i])) continue;
        *out = promote(plan, i);
        return VKRT_OK;
    }
    return recording_make(d, plan, out);
}

void plan_used(Plan *plan, Recording *r, uint32_t stream, uint64_t ticket) {
    for (uint32_t i = 0; i < plan->slots; i++)
        if (plan->bindings[i].range) note_use(plan->bindings[i].range, stream, ticket, plan->access[i] & 2);
    if (r->tables) note_use(r->tables, stream, ticket, false);
    r->uses.at[stream] = ticket_value(ticket);
    if (r->queries) plan->profiled = r;
}

int32_t plan_run(Device *d, Plan *plan, const uint32_t *slots, uint32_t times, uint32_t stream, uint64_t *ticket) {
    TRY(queue_open(d, stream));
    Recording *r;
    TRY(plan_bind(d, plan, slots, &r));
    VkCommandBuffer buffers[1 + VKRT_MAX_TIMES];
    Uses behind = {0};
    TRY(plan_behind(d, plan, stream, &behind));
    TRY(queue_submit(d, stream, &behind, buffers, buffers_of(r, times, buffers), ticket));
    plan_used(plan, r, stream, *ticket);
    return VKRT_OK;
}
