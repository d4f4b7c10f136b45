// Failing with a message, which is kept per device and call, and the results of Vulkan calls.

#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Thread_local const char *current_call = "";
static _Thread_local char last_failure[MESSAGE_BYTES];

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

#define NAMED(code) {code, #code}
static const struct {
    VkResult result;
    const char *name;
} RESULTS[] = {
    NAMED(VK_NOT_READY),
    NAMED(VK_TIMEOUT),
    NAMED(VK_INCOMPLETE),
    NAMED(VK_ERROR_OUT_OF_HOST_MEMORY),
    NAMED(VK_ERROR_OUT_OF_DEVICE_MEMORY),
    NAMED(VK_ERROR_INITIALIZATION_FAILED),
    NAMED(VK_ERROR_DEVICE_LOST),
    NAMED(VK_ERROR_MEMORY_MAP_FAILED),
    NAMED(VK_ERROR_LAYER_NOT_PRESENT),
    NAMED(VK_ERROR_EXTENSION_NOT_PRESENT),
    NAMED(VK_ERROR_FEATURE_NOT_PRESENT),
    NAMED(VK_ERROR_INCOMPATIBLE_DRIVER),
    NAMED(VK_ERROR_TOO_MANY_OBJECTS),
    NAMED(VK_ERROR_FRAGMENTED_POOL),
    NAMED(VK_ERROR_UNKNOWN),
    NAMED(VK_ERROR_INVALID_SHADER_NV),
};

const char *result_name(VkResult result) {
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].result == result) return RESULTS[i].name;
    return "an unknown VkResult";
}

bool device_fault(Device *d, const char *call) {
    if (!d->fault_call[0] || strcmp(call, d->fault_call) != 0) return false;
    return atomic_fetch_add(&d->fault_calls, 1) >= d->fault_skip;
}

int32_t device_result(Device *d, const char *call, VkResult result) {
    if (result == VK_SUCCESS) return VKRT_OK;
    switch (result) {
        case VK_TIMEOUT:
        case VK_NOT_READY: return VKRT_ERROR_TIMEOUT;
        case VK_ERROR_OUT_OF_HOST_MEMORY: return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "%s: the host is out of memory", call);
        case VK_ERROR_OUT_OF_DEVICE_MEMORY: return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "%s: the device is out of memory", call);
        case VK_ERROR_DEVICE_LOST:
            atomic_store(&d->lost, true);
            return fail(d, VKRT_ERROR_DEVICE_LOST, "%s: the device was lost (driver reset or crash); close it and open it again", call);
        default: return fail(d, VKRT_ERROR_VULKAN, "%s answered %s (%d)", call, result_name(result), (int)result);
    }
}

int32_t device_lost(Device *d) {
    return fail(d, VKRT_ERROR_DEVICE_LOST, "the device was lost (driver reset or crash); close it and open it again");
}
