// The exports of vk_runtime.h. Each finds its objects, checks its arguments, calls one function and answers its status.

#include "vk_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/drivers.h"
#include "device/facts.h"
#include "failure.h"
#include "device/loader.h"
#include "memory.h"
#include "plan/pair.h"
#include "plan/pipelines.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "queue.h"
#include "plan/recording.h"
#include "plan/statistics.h"
#include "transfer.h"

uint32_t vkrt_abi(void) { return kernel_abi_hash; }

// ---- finding things -----------------------------------------------------------------------------------------------------

static int32_t device_find(uint32_t handle, Device **out, bool wait) {
    lock_acquire(&runtime.lock);
    Device *d = handle_get(&runtime.devices, handle);
    if (d && wait) atomic_fetch_add(&d->waiters, 1); // vkrt_device_close lets waiters leave first
    lock_release(&runtime.lock);
    if (!d) return fail(NULL, VKRT_ERROR_HANDLE, "there is no open device %08x", handle);
    *out = d;
    return VKRT_OK;
}

static int32_t device_alive(Device *d) { return atomic_load(&d->lost) ? device_lost(d) : VKRT_OK; }

static int32_t enter(const char *call, uint32_t handle, Device **out) {
    current_call = call;
    TRY(device_find(handle, out, false));
    return device_alive(*out);
}

static int32_t buffer_find(Device *d, uint32_t handle, Buffer **out) {
    *out = handle_get(&d->buffers, handle);
    return *out ? VKRT_OK : fail(d, VKRT_ERROR_HANDLE, "there is no buffer %08x; it was freed or belongs to another device", handle);
}

static int32_t plan_find(Device *d, uint32_t handle, Plan **out) {
    *out = handle_get(&d->plans, handle);
    return *out ? VKRT_OK : fail(d, VKRT_ERROR_HANDLE, "there is no plan %08x; it was freed or belongs to another device", handle);
}

static int32_t need(Device *d, const void *pointer, const char *name) {
    return pointer ? VKRT_OK : fail(d, VKRT_ERROR_ARGUMENT, "%s is NULL", name);
}

static int32_t no_handle(Device *d, const HandleTable *table, const char *what) {
    if (table->live < MAX_HANDLES) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "no more than %u %s can live at once", MAX_HANDLES, what);
}

static int32_t buffer_range(Device *d, uint32_t handle, uint64_t offset, uint64_t bytes, Buffer **out) {
    TRY(buffer_find(d, handle, out));
    if (offset <= (*out)->bytes && bytes <= (*out)->bytes - offset) return VKRT_OK;
    return fail(d, VKRT_ERROR_ARGUMENT, "%llu bytes at %llu do not fit a buffer of %llu bytes", (unsigned long long)bytes,
                (unsigned long long)offset, (unsigned long long)(*out)->bytes);
}

// ---- devices --------------------------------------------------------------------------------------------------------

int32_t vkrt_device_count(uint32_t *out) {
    current_call = __func__;
    TRY(need(NULL, out, "out"));
    *out = 0;
    lock_acquire(&runtime.lock);
    int32_t status = instance_open();
    if (status == VKRT_OK) *out = runtime.physical_count;
    lock_release(&runtime.lock);
    return status;
}

int32_t vkrt_driver_failures(char *text, uint32_t capacity) {
    current_call = __func__;
    TRY(need(NULL, text, "text"));
    if (capacity == 0) return fail(NULL, VKRT_ERROR_ARGUMENT, "capacity is 0");
    lock_acquire(&runtime.lock);
    driver_failures(text, capacity);
    lock_release(&runtime.lock);
    return VKRT_OK;
}

int32_t vkrt_device_info(uint32_t index, const char *mask, char *text, uint32_t capacity) {
    current_call = __func__;
    TRY(need(NULL, text, "text"));
    if (capacity == 0) return fail(NULL, VKRT_ERROR_ARGUMENT, "capacity is 0");
    lock_acquire(&runtime.lock);
    int32_t status = instance_open();
    if (status == VKRT_OK && index >= runtime.physical_count)
        status = fail(NULL, VKRT_ERROR_ARGUMENT, "there is no device %u; Vulkan shows %u", index, runtime.physical_count);
    if (status == VKRT_OK) {
        Facts facts;
        status = facts_read(runtime.physical[index], mask, &facts);
        if (status == VKRT_OK) facts_json(&facts, text, capacity);
    }
    lock_release(&runtime.lock);
    return status;
}

static int32_t open_locked(uint32_t index, const char *mask, const char *cache_dir, uint32_t *device) {
    TRY(instance_open());
    if (runtime.devices.kind == 0) handles_init(&runtime.devices, 3, 0);
    if (runtime.devices.live >= MAX_DEVICES) return fail(NULL, VKRT_ERROR_ARGUMENT, "%d devices are open already", MAX_DEVICES);
    Device *d;
    TRY(device_open(index, mask, cache_dir, &d));
    *device = handle_new(&runtime.devices, d);
    if (*device) return VKRT_OK;
    device_close(d);
    return fail(NULL, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
}

int32_t vkrt_device_open(uint32_t index, const char *mask, const char *cache_dir, uint32_t *device) {
    current_call = __func__;
    TRY(need(NULL, device, "device"));
    *device = 0;
    lock_acquire(&runtime.lock);
    int32_t status = open_locked(index, mask, cache_dir, device);
    lock_release(&runtime.lock);
    return status;
}

// The handle goes before the device, so that no new waiter comes in.
int32_t vkrt_device_close(uint32_t device) {
    current_call = __func__;
    Device *d;
    TRY(device_find(device, &d, false));
    TRY(queue_idle(d));
    lock_acquire(&runtime.lock);
    handle_free(&runtime.devices, device);
    lock_release(&runtime.lock);
    device_close(d);
    return VKRT_OK;
}

int32_t vkrt_last_error(uint32_t device, char *text, uint32_t capacity) {
    current_call = __func__;
    Device *d = NULL;
    if (device != 0) TRY(device_find(device, &d, false));
    messages_copy(d ? &d->messages : &runtime.messages, text, capacity);
    return VKRT_OK;
}

int32_t vkrt_memory(uint32_t device, uint64_t *out) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, out, "out"));
    memory_report(d, out);
    return VKRT_OK;
}

int32_t vkrt_reset_peak_memory(uint32_t device) {
    Device *d;
    TRY(enter(__func__, device, &d));
    d->memory.peak = 0;
    return VKRT_OK;
}

int32_t vkrt_cache_limit(uint32_t device, uint64_t bytes) {
    Device *d;
    TRY(enter(__func__, device, &d));
    return memory_cache_limit(d, bytes);
}

// ---- buffers --------------------------------------------------------------------------------------------------------

int32_t vkrt_buffer_new(uint32_t device, uint64_t bytes, uint32_t kind, uint32_t *buffer) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, buffer, "buffer"));
    *buffer = 0;
    if (bytes == 0) return fail(d, VKRT_ERROR_ARGUMENT, "a buffer cannot have 0 bytes");
    if (kind > VKRT_BUFFER_READBACK) return fail(d, VKRT_ERROR_ARGUMENT, "there is no kind of buffer %u", kind);
    Buffer *b = calloc(1, sizeof *b);
    if (!b) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    b->bytes = bytes;
    int32_t status = range_new(d, kind, bytes, false, &b->range);
    if (status == VKRT_OK) {
        *buffer = handle_new(&d->buffers, b);
        if (*buffer) return VKRT_OK;
        range_free(d, b->range);
        status = no_handle(d, &d->buffers, "buffers");
    }
    free(b);
    return status;
}

int32_t vkrt_buffer_free(uint32_t device, uint32_t buffer) {
    Device *d;
    TRY(enter(__func__, device, &d));
    Buffer *b;
    TRY(buffer_find(d, buffer, &b));
    handle_free(&d->buffers, buffer);
    range_free(d, b->range);
    free(b);
    return VKRT_OK;
}

int32_t vkrt_buffer_write(uint32_t device, uint32_t buffer, uint64_t offset, const void *data, uint64_t bytes) {
    Device *d;
    TRY(enter(__func__, device, &d));
    Buffer *b;
    TRY(buffer_range(d, buffer, offset, bytes, &b));
    if (bytes == 0) return VKRT_OK;
    TRY(need(d, data, "data"));
    return transfer_write(d, b, offset, data, bytes);
}

int32_t vkrt_buffer_read(uint32_t device, uint32_t buffer, uint64_t offset, void *data, uint64_t bytes) {
    Device *d;
    TRY(enter(__func__, device, &d));
    Buffer *b;
    TRY(buffer_range(d, buffer, offset, bytes, &b));
    if (bytes == 0) return VKRT_OK;
    TRY(need(d, data, "data"));
    return transfer_read(d, b, offset, data, bytes);
}

int32_t vkrt_buffer_read_mapped(uint32_t device, uint32_t buffer, uint64_t offset, void *data, uint64_t bytes) {
    Device *d;
    TRY(enter(__func__, device, &d));
    Buffer *b;
    TRY(buffer_range(d, buffer, offset, bytes, &b));
    if (b->range->chunk->pool != POOL_VISIBLE)
        return fail(d, VKRT_ERROR_ARGUMENT, "the host sees only buffers of the visible kind without waiting");
    if (bytes == 0) return VKRT_OK;
    TRY(need(d, data, "data"));
    memcpy(data, range_mapped(b->range) + offset, bytes);
    return VKRT_OK;
}

int32_t vkrt_buffer_load(uint32_t device, uint32_t buffer, uint64_t offset, const char *path, uint64_t file_offset, uint64_t bytes) {
    Device *d;
    TRY(enter(__func__, device, &d));
    Buffer *b;
    TRY(buffer_range(d, buffer, offset, bytes, &b));
    TRY(need(d, path, "path"));
    return transfer_load(d, b, offset, path, file_offset, bytes);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

#define SPIRV_MAGIC 0x07230203u
#define SPIRV_HEADER_WORDS 5

int32_t vkrt_kernel_new(uint32_t device, const char *name, const uint32_t *spirv, uint32_t count, uint32_t buffers, uint32_t writes,
                        uint32_t optional, uint32_t *kernel) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, kernel, "kernel"));
    *kernel = 0;
    TRY(need(d, name, "name"));
    TRY(need(d, spirv, "spirv"));
    if (count <= SPIRV_HEADER_WORDS || spirv[0] != SPIRV_MAGIC) return fail(d, VKRT_ERROR_ARGUMENT, "these %u words are no SPIR-V", count);
    if (buffers == 0 || buffers > PLAN_MAX_BUFFERS)
        return fail(d, VKRT_ERROR_ARGUMENT, "a kernel has 1 to %d buffers: found %u", PLAN_MAX_BUFFERS, buffers);
    if ((writes | optional) >> buffers)
        return fail(d, VKRT_ERROR_ARGUMENT, "writes %x and optional %x name more than %u buffers", writes, optional, buffers);
    uint32_t all = (1u << buffers) - 1;
    KernelRow row = {
        .buffers = (uint8_t)buffers,
        .reads = (uint16_t)all,
        .writes = (uint16_t)writes,
        .optional = (uint16_t)optional,
        .spec = KERNEL_SPEC_WORDS,
        .push_words = KERNEL_PUSH_WORDS,
        .axes = 3,
    };
    return kernel_make(d, name, spirv, count, row, kernel);
}

// ---- plans ----------------------------------------------------------------------------------------------------------

int32_t vkrt_plan_new(uint32_t device, const uint32_t *words, uint32_t count, uint32_t *plan) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, plan, "plan"));
    *plan = 0;
    if (count > 0) TRY(need(d, words, "words"));
    Plan *p;
    TRY(plan_new(d, words, count, &p));
    *plan = handle_new(&d->plans, p);
    if (*plan) return VKRT_OK;
    plan_free(d, p);
    return no_handle(d, &d->plans, "plans");
}

int32_t vkrt_plan_prepare(uint32_t device, const uint32_t *words, uint32_t count) {
    current_call = __func__;
    Device *d;
    TRY(device_find(device, &d, true));
    int32_t status = device_alive(d);
    if (status == VKRT_OK && count > 0) status = need(d, words, "words");
    if (status == VKRT_OK) status = plan_prepare(d, words, count);
    atomic_fetch_sub(&d->waiters, 1);
    return status;
}

// The Plan with a handle and its `count` words of slots.
static int32_t work_find(Device *d, uint32_t plan, const uint32_t *slots, uint32_t count, Work *out) {
    TRY(plan_find(d, plan, &out->plan));
    out->slots = slots;
    if (count != 4 * (uint64_t)out->plan->slots)
        return fail(d, VKRT_ERROR_ARGUMENT, "the plan has %u slots of 4 words: found %u words", out->plan->slots, count);
    return count > 0 ? need(d, slots, "slots") : VKRT_OK;
}

int32_t vkrt_plan_run(uint32_t device, uint32_t plan, const uint32_t *slots, uint32_t count, uint32_t times, uint32_t stream,
                      uint64_t *ticket) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, ticket, "ticket"));
    *ticket = 0;
    Work work;
    TRY(work_find(d, plan, slots, count, &work));
    if (times == 0 || times > VKRT_MAX_TIMES)
        return fail(d, VKRT_ERROR_ARGUMENT, "a plan runs 1 to %d times: found %u", VKRT_MAX_TIMES, times);
    if (stream >= VKRT_STREAMS) return fail(d, VKRT_ERROR_ARGUMENT, "there are %d streams: found %u", VKRT_STREAMS, stream);
    return plan_run(d, work.plan, slots, times, stream, ticket);
}

int32_t vkrt_plan_run_pair(uint32_t device, uint32_t first, const uint32_t *first_slots, uint32_t first_count, uint32_t second,
                           const uint32_t *second_slots, uint32_t second_count, uint64_t *ticket) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, ticket, "ticket"));
    *ticket = 0;
    Work work[2];
    TRY(work_find(d, first, first_slots, first_count, &work[0]));
    TRY(work_find(d, second, second_slots, second_count, &work[1]));
    return pair_run(d, work, ticket);
}

int32_t vkrt_plan_free(uint32_t device, uint32_t plan) {
    Device *d;
    TRY(enter(__func__, device, &d));
    Plan *p;
    TRY(plan_find(d, plan, &p));
    handle_free(&d->plans, plan);
    plan_free(d, p);
    return VKRT_OK;
}

static int32_t wait_for(Device *d, uint64_t ticket, uint32_t timeout_ms) {
    TRY(device_alive(d));
    uint32_t stream = ticket_stream(ticket);
    if (stream >= VKRT_STREAMS) return fail(d, VKRT_ERROR_ARGUMENT, "ticket %llu is of no stream", (unsigned long long)ticket);
    uint64_t submitted = ticket_of(stream, atomic_load(&d->streams[stream].submitted));
    if (ticket > submitted)
        return fail(d, VKRT_ERROR_ARGUMENT, "ticket %llu was never given; the last one is %llu", (unsigned long long)ticket,
                    (unsigned long long)submitted);
    return queue_wait(d, ticket, timeout_ms);
}

int32_t vkrt_wait(uint32_t device, uint64_t ticket, uint32_t timeout_ms) {
    current_call = __func__;
    Device *d;
    TRY(device_find(device, &d, true));
    int32_t status = wait_for(d, ticket, timeout_ms);
    atomic_fetch_sub(&d->waiters, 1);
    return status;
}

int32_t vkrt_profile(uint32_t device, uint32_t on) {
    Device *d;
    TRY(enter(__func__, device, &d));
    return profile_switch(d, on != 0);
}

int32_t vkrt_profile_read(uint32_t device, uint32_t plan, double *nanoseconds, uint32_t capacity, uint32_t *count) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, count, "count"));
    *count = 0;
    Plan *p;
    TRY(plan_find(d, plan, &p));
    if (capacity > 0) TRY(need(d, nanoseconds, "nanoseconds"));
    return profile_read(d, p, nanoseconds, capacity, count);
}

int32_t vkrt_pipelines_save(uint32_t device) {
    current_call = __func__;
    Device *d;
    TRY(device_find(device, &d, true));
    int32_t status = pipelines_save(d);
    atomic_fetch_sub(&d->waiters, 1);
    return status;
}

int32_t vkrt_plan_barriers(uint32_t device, uint32_t plan, uint32_t *count) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, count, "count"));
    Plan *p;
    TRY(plan_find(d, plan, &p));
    *count = p->recordings[0] ? p->recordings[0]->barriers : 0;
    return VKRT_OK;
}

int32_t vkrt_plan_statistics(uint32_t device, uint32_t plan, uint32_t dispatch, char *text, uint32_t capacity) {
    Device *d;
    TRY(enter(__func__, device, &d));
    TRY(need(d, text, "text"));
    if (capacity == 0) return fail(d, VKRT_ERROR_ARGUMENT, "capacity is 0");
    text[0] = 0;
    Plan *p;
    TRY(plan_find(d, plan, &p));
    if (dispatch >= p->dispatches)
        return fail(d, VKRT_ERROR_ARGUMENT, "the plan has %u dispatches: there is no dispatch %u", p->dispatches, dispatch);
    return statistics_read(d, &p->dispatch[dispatch], text, capacity);
}

// ---- counters -------------------------------------------------------------------------------------------------------

int32_t vkrt_validation_messages(uint32_t *count) {
    current_call = __func__;
    TRY(need(NULL, count, "count"));
    *count = atomic_load(&runtime.validation_messages);
    return VKRT_OK;
}

int32_t vkrt_live_objects(uint32_t *out) {
    current_call = __func__;
    TRY(need(NULL, out, "out"));
    lock_acquire(&runtime.lock);
    out[0] = runtime.devices.live;
    out[1] = out[2] = out[3] = 0;
    for (uint32_t i = 0; i < runtime.devices.count; i++) {
        const Device *d = runtime.devices.entries[i].object;
        if (!d) continue;
        out[1] += d->buffers.live;
        out[2] += d->plans.live;
        out[3] += atomic_load(&d->pipelines.made_count);
    }
    lock_release(&runtime.lock);
    return VKRT_OK;
}
