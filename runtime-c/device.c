// A device: opening and closing in mirrored order, failing with a message, the timeline that orders all work.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

Runtime runtime = {.lock = LOCK_INIT, .messages = {.lock = LOCK_INIT}};
_Thread_local const char *current_call = "";
static _Thread_local char last_failure[MESSAGE_BYTES];

// ---- failing --------------------------------------------------------------------------------------------------------

int32_t fail(Device *d, int32_t status, const char *format, ...) {
    char text[MESSAGE_BYTES]; // an argument may be what failed last
    int length = snprintf(text, sizeof text, "%s(): ", current_call);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    memcpy(last_failure, text, sizeof text);
    failure_keep(d, text);
    return status;
}

const char *failure_text(void) { return last_failure; }

void failure_keep(Device *d, const char *text) {
    Messages *m = d ? &d->messages : &runtime.messages;
    lock_acquire(&m->lock);
    uint32_t at = 0;
    while (at < MESSAGES - 1 && m->kept[at].call != current_call) at++;
    for (; at > 0; at--) m->kept[at] = m->kept[at - 1];
    m->kept[0].call = current_call;
    snprintf(m->kept[0].text, MESSAGE_BYTES, "%s", text);
    lock_release(&m->lock);
}

void messages_copy(Messages *messages, char *text, uint32_t capacity) {
    if (!text || capacity == 0) return;
    text[0] = 0;
    lock_acquire(&messages->lock);
    uint32_t used = 0;
    for (uint32_t i = 0; i < MESSAGES && messages->kept[i].call && used < capacity; i++)
        used += (uint32_t)snprintf(text + used, capacity - used, "%s%s", i ? "\n" : "", messages->kept[i].text);
    if (messages == &runtime.messages && runtime.validation[0] && used < capacity)
        snprintf(text + used, capacity - used, "%s%s", used ? "\n" : "", runtime.validation);
    lock_release(&messages->lock);
}

const char *result_name(VkResult result) {
    switch (result) {
#define NAME(code) case code: return #code;
        NAME(VK_NOT_READY) NAME(VK_TIMEOUT) NAME(VK_INCOMPLETE) NAME(VK_ERROR_OUT_OF_HOST_MEMORY) NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        NAME(VK_ERROR_INITIALIZATION_FAILED) NAME(VK_ERROR_DEVICE_LOST) NAME(VK_ERROR_MEMORY_MAP_FAILED) NAME(VK_ERROR_LAYER_NOT_PRESENT)
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT) NAME(VK_ERROR_FEATURE_NOT_PRESENT) NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
        NAME(VK_ERROR_TOO_MANY_OBJECTS) NAME(VK_ERROR_FRAGMENTED_POOL) NAME(VK_ERROR_UNKNOWN) NAME(VK_ERROR_INVALID_SHADER_NV)
#undef NAME
        default: return "an unknown VkResult";
    }
}

bool device_fault(Device *d, const char *call) {
    if (!d->fault_call[0] || strcmp(call, d->fault_call) != 0) return false;
    return atomic_fetch_add(&d->fault_calls, 1) >= d->fault_skip;
}

int32_t device_result(Device *d, const char *call, VkResult result) {
    if (result == VK_SUCCESS) return VKRT_OK;
    switch (result) {
        case VK_TIMEOUT: case VK_NOT_READY: return VKRT_ERROR_TIMEOUT;
        case VK_ERROR_OUT_OF_HOST_MEMORY: return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "%s: the host is out of memory", call);
        case VK_ERROR_OUT_OF_DEVICE_MEMORY: return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "%s: the device is out of memory", call);
        case VK_ERROR_DEVICE_LOST:
            atomic_store(&d->lost, true);
            return fail(d, VKRT_ERROR_DEVICE_LOST, "%s: the device was lost (driver reset or crash); close it and open it again", call);
        default: return fail(d, VKRT_ERROR_VULKAN, "%s answered %s (%d)", call, result_name(result), (int)result);
    }
}

// ---- the timeline -----------------------------------------------------------------------------------------------------

int32_t device_lost(Device *d) {
    return fail(d, VKRT_ERROR_DEVICE_LOST, "the device was lost (driver reset or crash); close it and open it again");
}

uint64_t device_completed(Device *d) {
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

int32_t device_wait(Device *d, uint64_t ticket, uint64_t timeout_ms) {
    if (atomic_load(&d->completed) >= ticket) return VKRT_OK;
    if (timeout_ms == 0 && !d->idling) {
        uint64_t completed = device_completed(d);
        if (atomic_load(&d->lost)) return device_lost(d);
        return completed >= ticket ? VKRT_OK : VKRT_ERROR_TIMEOUT;
    }
    VkSemaphoreWaitInfo info = wait_info(d, &ticket);
    int32_t status = d->idling ? VK(d, QueueWaitIdle, d->queue) : VK(d, WaitSemaphores, d->device, &info, timeout_ms * 1000000);
    if (status == VKRT_ERROR_TIMEOUT)
        return fail(d, status, "work %llu still runs after %llu ms; wait again", (unsigned long long)ticket, (unsigned long long)timeout_ms);
    if (status != VKRT_OK) return status;
    uint64_t seen = atomic_load(&d->completed);
    while (seen < ticket && !atomic_compare_exchange_weak(&d->completed, &seen, ticket)) {}
    return VKRT_OK;
}

int32_t device_submit(Device *d, const VkCommandBuffer *commands, uint32_t count, uint64_t *ticket) {
    VkCommandBuffer transfers;
    TRY(transfer_end(d, &transfers));
    VkCommandBufferSubmitInfo buffers[2 + VKRT_MAX_TIMES];
    uint32_t all = 0;
    if (transfers) buffers[all++] = (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = transfers};
    for (uint32_t i = 0; i < count; i++) buffers[all++] = (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = commands[i]};
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

// ---- opening and closing ----------------------------------------------------------------------------------------------

// VKMX_STAGING=1: the host does not touch device memory even where it could, so that every device takes the long way.
// VKMX_QUEUE_IDLE=1: waits for the queue instead of the timeline, whose waits GPU-assisted validation holds up for ten seconds each.
static void read_switches(Device *d) {
    const char *staging = getenv("VKMX_STAGING"), *text = getenv("VKMX_FAULT");
    const char *idling = getenv("VKMX_QUEUE_IDLE");
    d->idling = idling && strcmp(idling, "1") == 0;
    if (staging && strcmp(staging, "1") == 0) d->facts.unified = false;
    if (!text) return;
    int result = 0;
    unsigned skip = 0;
    char call[sizeof d->fault_call];
    if (sscanf(text, "%47[^:]:%d:%u", call, &result, &skip) < 2) return;
    memcpy(d->fault_call, call, sizeof call);
    d->fault_result = result;
    d->fault_skip = skip;
}

static int32_t create_device(Device *d) {
    FeatureChain chain;
    const char *extensions[8];
    uint32_t count;
    facts_enable(d->physical, &d->facts, &chain, extensions, &count);
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = d->facts.family,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &chain.core,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = count,
        .ppEnabledExtensionNames = extensions,
    };
    VkResult result = runtime.vk.CreateDevice(d->physical, &info, NULL, &d->device);
    if (result != VK_SUCCESS) return fail(NULL, VKRT_ERROR_UNAVAILABLE, "vkCreateDevice answered %s for %s", result_name(result), d->facts.core.deviceName);
    if (!load_device_functions(d->device, &d->vk)) {
        PFN_vkDestroyDevice destroy = (PFN_vkDestroyDevice)runtime.vk.GetDeviceProcAddr(d->device, "vkDestroyDevice");
        if (destroy) destroy(d->device, NULL);
        d->device = VK_NULL_HANDLE;
        return fail(NULL, VKRT_ERROR_UNAVAILABLE, "the driver of %s lacks functions of Vulkan 1.3", d->facts.core.deviceName);
    }
    d->vk.GetDeviceQueue(d->device, d->facts.family, 0, &d->queue);
    return VKRT_OK;
}

static int32_t create_parts(Device *d, const char *cache_dir) {
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = d->facts.family,
    };
    TRY(VK(d, CreateCommandPool, d->device, &pool, NULL, &d->command_pool));
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    TRY(VK(d, CreateSemaphore, d->device, &semaphore, NULL, &d->timeline));
    TRY(memory_init(d));
    TRY(pipelines_init(d, cache_dir));
    return transfer_init(d);
}

// Frees in the reverse order of opening; tolerates a device that is half open.
static void destroy(Device *d) {
    for (uint32_t i = 0; i < d->plans.count; i++)
        if (d->plans.entries[i].object) plan_free(d, d->plans.entries[i].object);
    for (uint32_t i = 0; i < d->buffers.count; i++) free(d->buffers.entries[i].object);
    handles_deinit(&d->plans);
    handles_deinit(&d->buffers);
    if (d->device) {
        recordings_deinit(d);
        transfer_deinit(d);
        pipelines_deinit(d);
        memory_deinit(d);
        if (d->timeline) d->vk.DestroySemaphore(d->device, d->timeline, NULL);
        if (d->command_pool) d->vk.DestroyCommandPool(d->device, d->command_pool, NULL);
        d->vk.DestroyDevice(d->device, NULL);
    }
    free(d);
}

int32_t device_open(uint32_t index, const char *mask, const char *cache_dir, Device **out) {
    if (index >= runtime.physical_count)
        return fail(NULL, VKRT_ERROR_ARGUMENT, "there is no device %u; Vulkan shows %u", index, runtime.physical_count);
    Device *d = calloc(1, sizeof *d);
    if (!d) return fail(NULL, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    lock_init(&d->messages.lock);
    d->physical = runtime.physical[index];
    int32_t status = facts_read(d->physical, mask, &d->facts);
    uint32_t seed = runtime.opened++ * 37; // handles of one device are not those of another
    handles_init(&d->buffers, 1, seed);
    handles_init(&d->plans, 2, seed);
    read_switches(d);
    if (status == VKRT_OK && d->facts.unusable[0])
        status = fail(NULL, VKRT_ERROR_UNAVAILABLE, "%s lacks %s", d->facts.core.deviceName, d->facts.unusable);
    if (status == VKRT_OK) status = create_device(d);
    if (status == VKRT_OK) {
        status = create_parts(d, cache_dir);
        if (status != VKRT_OK) failure_keep(NULL, failure_text()); // nobody will be able to ask this device
    }
    if (status != VKRT_OK) {
        destroy(d);
        return status;
    }
    *out = d;
    return VKRT_OK;
}

int32_t device_idle(Device *d) {
    if (atomic_load(&d->lost)) { // its work ends in finite time, in whatever way
        uint64_t last = atomic_load(&d->submitted);
        VkSemaphoreWaitInfo info = wait_info(d, &last);
        d->vk.WaitSemaphores(d->device, &info, (uint64_t)PATIENCE_MS * 1000000);
        return VKRT_OK;
    }
    transfer_flush(d); // where this fails, what was submitted before is still waited for
    return device_wait(d, atomic_load(&d->submitted), PATIENCE_MS) == VKRT_ERROR_TIMEOUT ? VKRT_ERROR_TIMEOUT : VKRT_OK;
}

void device_close(Device *d) {
    while (atomic_load(&d->waiters) > 0) sleep_milliseconds(1); // calls on other threads end: the work is done or lost
    destroy(d);
}
