// Keeping recordings of Plans, submitting and replaying them.
//
// A Plan keeps a few recordings, one for each recent set of places that its slots were bound to. Other buffers at the
// same addresses are the same places. A recording is self-contained. It begins with a barrier against everything
// submitted before. It ends with a barrier for the host if the host can see a slot. So recordings may be replayed in
// any order, even while they are still running. A GPU idles for longer between two buffers than at a barrier, up to 20
// microseconds. So many runs are few buffers of 1, 2, 4 … runs. Where the first dispatches of a Plan open many runs in a
// row, these have a buffer of their own.

#include "plan/recording.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "memory.h"
#include "plan/profile.h"
#include "plan/record.h"
#include "queue.h"

#define MAX_TOGETHER 512u // dispatches of a buffer of several runs

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
    Recording kept = {.commands = r->commands, .preamble = r->preamble};
    memcpy(kept.runs, r->runs, sizeof kept.runs);
    *r = kept;
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

// ---- running --------------------------------------------------------------------------------------------------------

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
    TRY(record_first(d, plan, r));
    r->valid = true;
    *out = r;
    return VKRT_OK;
}

// Whether 1 << i runs are one whole run, which is recorded already.
static bool is_whole(const Plan *plan, uint32_t i) { return i == 0 && plan->preamble == 0; }

// The command buffers of `times` runs, recorded where they were not needed so far.
static int32_t buffers_of(Device *d, Plan *plan, Recording *r, uint32_t times, VkCommandBuffer *out, uint32_t *count) {
    *count = 0;
    if (times == 1 || r->queries) { // timed runs are whole
        for (; times > 0; times--) out[(*count)++] = r->commands;
        return VKRT_OK;
    }
    uint32_t most = 0, wanted = 0, left = times;
    while (most + 1 < RUNS && plan->dispatches << (most + 1) <= MAX_TOGETHER) most++;
    for (uint32_t i = most + 1; i-- > 0; left %= 1u << i)
        if (left >= 1u << i && !is_whole(plan, i)) wanted |= 1u << i;
    TRY(record_more(d, plan, r, wanted));
    if (plan->preamble > 0) out[(*count)++] = r->preamble;
    for (uint32_t i = most + 1; i-- > 0; times %= 1u << i)
        for (uint32_t n = times >> i; n > 0; n--) out[(*count)++] = is_whole(plan, i) ? r->commands : r->runs[i];
    return VKRT_OK;
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
    uint32_t count;
    TRY(buffers_of(d, plan, r, times, buffers, &count));
    TRY(queue_submit(d, stream, &behind, buffers, count, ticket));
    plan_used(plan, r, stream, *ticket);
    return VKRT_OK;
}
