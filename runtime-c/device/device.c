// A device: opening and closing in mirrored order.

#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/facts.h"
#include "failure.h"
#include "device/loader.h"
#include "memory.h"
#include "plan/pair.h"
#include "plan/pipelines.h"
#include "plan/plan.h"
#include "queue.h"
#include "plan/recording.h"
#include "transfer.h"

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
    float priority[VKRT_STREAMS];
    for (uint32_t i = 0; i < VKRT_STREAMS; i++) priority[i] = 1;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = d->facts.family,
        .queueCount = d->facts.queues,
        .pQueuePriorities = priority,
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
    if (result != VK_SUCCESS)
        return fail(NULL, VKRT_ERROR_UNAVAILABLE, "vkCreateDevice answered %s for %s", result_name(result), d->facts.core.deviceName);
    if (!load_device_functions(d->device, &d->vk)) {
        PFN_vkDestroyDevice destroy = (PFN_vkDestroyDevice)runtime.vk.GetDeviceProcAddr(d->device, "vkDestroyDevice");
        if (destroy) destroy(d->device, NULL);
        d->device = VK_NULL_HANDLE;
        return fail(NULL, VKRT_ERROR_UNAVAILABLE, "the driver of %s lacks functions of Vulkan 1.3", d->facts.core.deviceName);
    }
    for (uint32_t i = 0; i < VKRT_STREAMS; i++) d->vk.GetDeviceQueue(d->device, d->facts.family, i % d->facts.queues, &d->streams[i].queue);
    return VKRT_OK;
}

static int32_t create_parts(Device *d, const char *cache_dir) {
    TRY(queue_init(d));
    TRY(memory_init(d));
    return pipelines_init(d, cache_dir);
}

// Frees in the reverse order of opening; tolerates a device that is half open.
static void destroy(Device *d) {
    for (uint32_t i = 0; i < d->plans.count; i++)
        if (d->plans.entries[i].object) plan_free(d, d->plans.entries[i].object);
    for (uint32_t i = 0; i < d->buffers.count; i++) free(d->buffers.entries[i].object);
    handles_deinit(&d->plans);
    handles_deinit(&d->buffers);
    if (d->device) {
        pairs_deinit(d);
        recordings_deinit(d);
        transfer_deinit(d);
        pipelines_deinit(d);
        memory_deinit(d);
        queue_deinit(d);
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
        if (status != VKRT_OK) failure_keep(NULL, failure_text()); // no caller can ask this device any more
    }
    if (status != VKRT_OK) {
        destroy(d);
        return status;
    }
    *out = d;
    return VKRT_OK;
}

void device_close(Device *d) {
    while (atomic_load(&d->waiters) > 0) sleep_milliseconds(1); // calls on other threads end: the work is done or lost
    destroy(d);
}
