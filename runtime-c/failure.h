// Failing: a message that is kept, a status that goes up.

#ifndef VKMX_FAILURE_H
#define VKMX_FAILURE_H
#include <stdint.h>

#include "state.h"

extern _Thread_local const char *current_call; // the export that runs, for messages; threads that help it set it too

// Keeps "call(): text" as the message of the current call on the device (NULL: of calls without one) and answers `status`.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int32_t fail(Device *d, int32_t status, const char *format, ...);

// The last message of fail() on this thread, and a way to keep it again as the newest of the current call.
const char *failure_text(void);
void failure_keep(Device *d, const char *text);
void messages_copy(Messages *messages, char *text, uint32_t capacity); // a line for each call

const char *result_name(VkResult result);

// Every Vulkan call of a device goes through here: status of the result, message with the call's name, the lost device.
int32_t device_result(Device *d, const char *call, VkResult result);
int32_t device_lost(Device *d); // fails with what to do
bool device_fault(Device *d, const char *call);
#define VK(d, name, ...) \
    device_result((d), "vk" #name, device_fault((d), "vk" #name) ? (VkResult)(d)->fault_result : (d)->vk.name(__VA_ARGS__))

// Leaves the function on failure.
#define TRY(expression) \
    do { \
        int32_t try_status = (expression); \
        if (try_status != VKRT_OK) return try_status; \
    } while (0)

#endif
