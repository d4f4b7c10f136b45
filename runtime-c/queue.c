// Streams: a timeline semaphore orders the work of each, and its value after a submission is the ticket of that
// submission. Work on one stream that depends on another waits for the other's timeline. On a device with one stream in
// use nothing waits. Copies collect in an open command buffer on the first stream, which is submitted before the next
// Plan.

#include "queue.h"

#include "commands.h"
#include "failure.h"
#include "device/platform.h"

// How long a wait for a GPU looks before the host sleeps, from which it takes 50 microseconds and more to come back. A driver on
// the CPU needs the processor itself.
#define LOOK_MICROSECONDS 2000
#define EARLY_NANOSECONDS 100000 // how often an event is looked at, for which there is no wait

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

int32_t queue_open(Device *d, uint32_t stream) {
    Stream *s = &d->streams[stream];
    if (s->timeline) return VKRT_OK;
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    TRY(VK(d, CreateSemaphore, d->device, &semaphore, NULL, &s->timeline));
    if (atomic_load(&d->opened) <= stream) atomic_store(&d->opened, stream + 1);
    return VKRT_OK;
}

int32_t queue_init(Device *d) {
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = d->facts.family,
    };
    TRY(VK(d, CreateCommandPool, d->device, &pool, NULL, &d->command_pool));
    TRY(queue_open(d, 0));
    for (uint32_t i = 0; i < COPIES_RING; i++) TRY(commands_new(d, &d->copies.commands[i]));
    return VKRT_OK;
}

void queue_deinit(Device *d) {
    for (uint32_t s = 0; s < VKRT_STREAMS; s++)
        if (d->streams[s].timeline) d->vk.DestroySemaphore(d->device, d->streams[s].timeline, NULL);
    if (d->command_pool) d->vk.DestroyCommandPool(d->device, d->command_pool, NULL);
}

// ---- waiting --------------------------------------------------------------------------------------------------------

uint64_t queue_next_ticket(Device *d) { return atomic_load(&d->streams[0].submitted) + 1; }

// Value of the last work of a stream that is done.
static uint64_t completed_of(Device *d, Stream *s) {
    uint64_t seen = atomic_load(&s->completed), value = 0;
    if (d->idling || seen == atomic_load(&s->submitted)) return seen;
    if (VK(d, GetSemaphoreCounterValue, d->device, s->timeline, &value) != VKRT_OK) return seen;
    uint64_t early = atomic_load(&s->early);
    if (early > larger(seen, value) && d->vk.GetEventStatus(d->device, atomic_load(&s->event)) == VK_EVENT_SET) value = early;
    while (seen < value && !atomic_compare_exchange_weak(&s->completed, &seen, value)) {}
    return value > seen ? value : seen;
}

bool queue_done(Device *d, const Uses *uses) {
    uint32_t opened = atomic_load(&d->opened);
    for (uint32_t s = 0; s < opened; s++)
        if (uses->at[s] > atomic_load(&d->streams[s].completed) && uses->at[s] > completed_of(d, &d->streams[s])) return false;
    return true;
}

static VkSemaphoreWaitInfo wait_info(const Stream *s, const uint64_t *value) {
    return (VkSemaphoreWaitInfo){
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &s->timeline,
        .pValues = value,
    };
}

// Whether a stream has come to a value after a while at most.
static bool look(Device *d, Stream *s, uint64_t value) {
    if (d->facts.core.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU || d->idling) return false;
    uint64_t end = clock_microseconds() + LOOK_MICROSECONDS;
    while (completed_of(d, s) < value)
        if (clock_microseconds() > end || atomic_load(&d->lost)) return false;
    return true;
}

// Whether a value came within a while that an event tells of.
static bool wait_early(Device *d, Stream *s, uint64_t value, uint64_t timeout_ms) {
    if (atomic_load(&s->early) != value || d->idling) return false;
    VkSemaphoreWaitInfo info = wait_info(s, &value);
    uint64_t end = clock_microseconds() + timeout_ms * 1000;
    while (completed_of(d, s) < value)
        if (d->vk.WaitSemaphores(d->device, &info, EARLY_NANOSECONDS) != VK_TIMEOUT || clock_microseconds() > end) return false;
    return true;
}

int32_t queue_wait(Device *d, uint64_t ticket, uint64_t timeout_ms) {
    Stream *s = &d->streams[ticket_stream(ticket)];
    uint64_t value = ticket_value(ticket);
    if (atomic_load(&s->completed) >= value) return VKRT_OK;
    if (timeout_ms == 0 && !d->idling) {
        uint64_t completed = completed_of(d, s);
        if (atomic_load(&d->lost)) return device_lost(d);
        return completed >= value ? VKRT_OK : VKRT_ERROR_TIMEOUT;
    }
    if (look(d, s, value) || wait_early(d, s, value, timeout_ms)) return VKRT_OK;
    VkSemaphoreWaitInfo info = wait_info(s, &value);
    int32_t status = d->idling ? VK(d, QueueWaitIdle, s->queue) : VK(d, WaitSemaphores, d->device, &info, timeout_ms * 1000000);
    if (status == VKRT_ERROR_TIMEOUT)
        return fail(d, status, "work %llu still runs after %llu ms; wait again", (unsigned long long)value, (unsigned long long)timeout_ms);
    if (status != VKRT_OK) return status;
    uint64_t seen = atomic_load(&s->completed);
    while (seen < value && !atomic_compare_exchange_weak(&s->completed, &seen, value)) {}
    return VKRT_OK;
}

int32_t queue_wait_uses(Device *d, const Uses *uses) {
    uint32_t opened = atomic_load(&d->opened);
    for (uint32_t s = 0; s < opened; s++)
        if (uses->at[s] > 0) TRY(queue_wait(d, ticket_of(s, uses->at[s]), PATIENCE_MS));
    return VKRT_OK;
}

static Uses all_submitted(Device *d) {
    Uses uses = {0};
    for (uint32_t s = 0; s < VKRT_STREAMS; s++) uses.at[s] = atomic_load(&d->streams[s].submitted);
    return uses;
}

int32_t queue_wait_all(Device *d) {
    TRY(queue_flush(d));
    Uses all = all_submitted(d);
    return queue_wait_uses(d, &all);
}

// ---- order among streams ----------------------------------------------------------------------------------------------

void queue_behind(Device *d, uint32_t stream, const Range *range, bool write, Uses *behind) {
    uint32_t opened = atomic_load(&d->opened);
    if (!write) {
        uint32_t writer = ticket_stream(range->written);
        if (writer != stream) behind->at[writer] = larger(behind->at[writer], ticket_value(range->written));
        return;
    }
    for (uint32_t s = 0; s < opened; s++)
        if (s != stream) behind->at[s] = larger(behind->at[s], range->uses.at[s]);
}

// Collects the timeline values that `stream` must still wait for, and returns their number.
static uint32_t waits_for(Device *d, uint32_t stream, const Uses *behind, VkSemaphoreSubmitInfo *out) {
    uint32_t count = 0, opened = atomic_load(&d->opened);
    const Uses *seen = &d->streams[stream].seen;
    for (uint32_t s = 0; s < opened; s++) {
        uint64_t value = behind->at[s];
        if (s == stream || value <= seen->at[s] || value <= atomic_load(&d->streams[s].completed)) continue;
        out[count++] = (VkSemaphoreSubmitInfo){
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
            .semaphore = d->streams[s].timeline,
            .value = value,
            .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
        };
    }
    return count;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define COPY VK_PIPELINE_STAGE_2_COPY_BIT
#define SHADER_WRITE VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT
#define COPY_WRITE VK_ACCESS_2_TRANSFER_WRITE_BIT
#define COPY_ACCESS (VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT)

int32_t queue_copies(Device *d, VkCommandBuffer *out) {
    Copies *c = &d->copies;
    *out = c->commands[c->ring];
    if (c->open) return VKRT_OK;
    uint32_t i = (c->ring + 1) % COPIES_RING;
    TRY(queue_wait(d, c->tickets[i], PATIENCE_MS));
    TRY(commands_begin(d, c->commands[i], VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT));
    c->ring = i;
    c->open = true;
    commands_barrier(d, c->commands[i], COMPUTE | COPY, SHADER_WRITE | COPY_WRITE, COPY, COPY_ACCESS);
    *out = c->commands[i];
    return VKRT_OK;
}

static int32_t copies_end(Device *d, VkCommandBuffer *out) {
    Copies *c = &d->copies;
    *out = VK_NULL_HANDLE;
    if (!c->open) return VKRT_OK;
    VkCommandBuffer commands = c->commands[c->ring];
    commands_barrier(d, commands, COPY, COPY_WRITE, VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT);
    c->open = false;
    TRY(VK(d, EndCommandBuffer, commands));
    c->tickets[c->ring] = queue_next_ticket(d);
    *out = commands;
    return VKRT_OK;
}

// ---- submitting -----------------------------------------------------------------------------------------------------

// Work that takes `tickets` of them; `ticket` is the last one.
static int32_t submit(Device *d, uint32_t stream, const Uses *behind, const VkCommandBuffer *commands, uint32_t count, uint64_t tickets,
                      uint64_t *ticket) {
    Stream *s = &d->streams[stream];
    Uses all_behind = *behind;
    VkCommandBuffer transfers = VK_NULL_HANDLE;
    if (stream == 0) {
        TRY(copies_end(d, &transfers));
        for (uint32_t i = 0; transfers && i < VKRT_STREAMS; i++) all_behind.at[i] = larger(all_behind.at[i], d->copies.behind.at[i]);
        d->copies.behind = (Uses){0};
    }
    VkSemaphoreSubmitInfo waits[VKRT_STREAMS];
    uint32_t wait_count = waits_for(d, stream, &all_behind, waits);
    VkCommandBufferSubmitInfo buffers[2 + VKRT_MAX_TIMES];
    uint32_t all = 0;
    if (transfers)
        buffers[all++] = (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = transfers};
    for (uint32_t i = 0; i < count; i++)
        buffers[all++] = (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = commands[i]};
    uint64_t value = atomic_load(&s->submitted) + tickets;
    VkSemaphoreSubmitInfo signal = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
        .semaphore = s->timeline,
        .value = value,
        .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
    };
    VkSubmitInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
        .waitSemaphoreInfoCount = wait_count,
        .pWaitSemaphoreInfos = waits,
        .commandBufferInfoCount = all,
        .pCommandBufferInfos = buffers,
        .signalSemaphoreInfoCount = 1,
        .pSignalSemaphoreInfos = &signal,
    };
    TRY(VK(d, QueueSubmit2, s->queue, 1, &info, VK_NULL_HANDLE));
    for (uint32_t i = 0; i < VKRT_STREAMS; i++) s->seen.at[i] = larger(s->seen.at[i], all_behind.at[i]);
    atomic_store(&s->submitted, value);
    if (ticket) *ticket = ticket_of(stream, value);
    return VKRT_OK;
}

int32_t queue_submit(Device *d, uint32_t stream, const Uses *behind, const VkCommandBuffer *commands, uint32_t count, uint64_t *ticket) {
    return submit(d, stream, behind, commands, count, 1, ticket);
}

int32_t queue_submit_pair(Device *d, const Uses *behind, VkCommandBuffer commands, VkEvent event, uint64_t *second) {
    TRY(submit(d, 0, behind, &commands, 1, 2, second));
    Stream *s = &d->streams[0];
    atomic_store(&s->event, event);
    atomic_store(&s->early, ticket_value(*second) - 1);
    return VKRT_OK;
}

int32_t queue_flush(Device *d) {
    Uses none = {0};
    return d->copies.open ? queue_submit(d, 0, &none, NULL, 0, NULL) : VKRT_OK;
}

// Of a lost device the work ends in finite time, in whatever way.
int32_t queue_idle(Device *d) {
    bool lost = atomic_load(&d->lost);
    if (!lost) queue_flush(d); // where this fails, what was submitted before is still waited for
    int32_t status = VKRT_OK;
    for (uint32_t i = 0; i < VKRT_STREAMS; i++) {
        Stream *s = &d->streams[i];
        uint64_t last = atomic_load(&s->submitted);
        if (last == 0) continue;
        VkSemaphoreWaitInfo info = wait_info(s, &last);
        if (lost) d->vk.WaitSemaphores(d->device, &info, (uint64_t)PATIENCE_MS * 1000000);
        else if (queue_wait(d, ticket_of(i, last), PATIENCE_MS) == VKRT_ERROR_TIMEOUT) status = VKRT_ERROR_TIMEOUT;
    }
    return status;
}
