// The queue: one timeline semaphore orders all work, and its value behind a submission is the ticket of that submission. Copies
// collect in an open command buffer that goes out in front of the next submission.

#include "queue.h"

#include "commands.h"
#include "failure.h"

int32_t queue_init(Device *d) {
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = d->facts.family,
    };
    TRY(VK(d, CreateCommandPool, d->device, &pool, NULL, &d->command_pool));
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    TRY(VK(d, CreateSemaphore, d->device, &semaphore, NULL, &d->timeline));
    for (uint32_t i = 0; i < COPIES_RING; i++) TRY(commands_new(d, &d->copies.commands[i]));
    return VKRT_OK;
}

void queue_deinit(Device *d) {
    if (d->timeline) d->vk.DestroySemaphore(d->device, d->timeline, NULL);
    if (d->command_pool) d->vk.DestroyCommandPool(d->device, d->command_pool, NULL);
}

// ---- waiting --------------------------------------------------------------------------------------------------------

uint64_t queue_next_ticket(Device *d) { return atomic_load(&d->submitted) + 1; }

uint64_t queue_completed(Device *d) {
    uint64_t seen = atomic_load(&d->completed), value = 0;
    if (d->idling || seen == atomic_load(&d->submitted)) return seen;
    if (VK(d, GetSemaphoreCounterValue, d->device, d->timeline, &value) != VKRT_OK) return seen;
    while (seen < value && !atomic_compare_exchange_weak(&d->completed, &seen, value)) {}
    return value > seen ? value : seen;
}

static VkSemaphoreWaitInfo wait_info(const Device *d, const uint64_t *ticket) {
    return (VkSemaphoreWaitInfo){
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &d->timeline,
        .pValues = ticket,
    };
}

int32_t queue_wait(Device *d, uint64_t ticket, uint64_t timeout_ms) {
    if (atomic_load(&d->completed) >= ticket) return VKRT_OK;
    if (timeout_ms == 0 && !d->idling) {
        uint64_t completed = queue_completed(d);
        if (atomic_load(&d->lost)) return device_lost(d);
        return completed >= ticket ? VKRT_OK : VKRT_ERROR_TIMEOUT;
    }
    VkSemaphoreWaitInfo info = wait_info(d, &ticket);
    int32_t status = d->idling ? VK(d, QueueWaitIdle, d->queue) : VK(d, WaitSemaphores, d->device, &info, timeout_ms * 1000000);
    if (status == VKRT_ERROR_TIMEOUT)
        return fail(d, status, "work %llu still runs after %llu ms; wait again", (unsigned long long)ticket,
                    (unsigned long long)timeout_ms);
    if (status != VKRT_OK) return status;
    uint64_t seen = atomic_load(&d->completed);
    while (seen < ticket && !atomic_compare_exchange_weak(&d->completed, &seen, ticket)) {}
    return VKRT_OK;
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

int32_t queue_submit(Device *d, const VkCommandBuffer *commands, uint32_t count, uint64_t *ticket) {
    VkCommandBuffer transfers;
    TRY(copies_end(d, &transfers));
    VkCommandBufferSubmitInfo buffers[2 + VKRT_MAX_TIMES];
    uint32_t all = 0;
    if (transfers)
        buffers[all++] = (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = transfers};
    for (uint32_t i = 0; i < count; i++)
        buffers[all++] = (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = commands[i]};
    VkSemaphoreSubmitInfo signal = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
        .semaphore = d->timeline,
        .value = atomic_load(&d->submitted) + 1,
        .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
    };
    VkSubmitInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
        .commandBufferInfoCount = all,
        .pCommandBufferInfos = buffers,
        .signalSemaphoreInfoCount = 1,
        .pSignalSemaphoreInfos = &signal,
    };
    TRY(VK(d, QueueSubmit2, d->queue, 1, &info, VK_NULL_HANDLE));
    atomic_store(&d->submitted, signal.value);
    if (ticket) *ticket = signal.value;
    return VKRT_OK;
}

int32_t queue_flush(Device *d) { return d->copies.open ? queue_submit(d, NULL, 0, NULL) : VKRT_OK; }

int32_t queue_idle(Device *d) {
    if (atomic_load(&d->lost)) { // its work ends in finite time, in whatever way
        uint64_t last = atomic_load(&d->submitted);
        VkSemaphoreWaitInfo info = wait_info(d, &last);
        d->vk.WaitSemaphores(d->device, &info, (uint64_t)PATIENCE_MS * 1000000);
        return VKRT_OK;
    }
    queue_flush(d); // where this fails, what was submitted before is still waited for
    return queue_wait(d, atomic_load(&d->submitted), PATIENCE_MS) == VKRT_ERROR_TIMEOUT ? VKRT_ERROR_TIMEOUT : VKRT_OK;
}
