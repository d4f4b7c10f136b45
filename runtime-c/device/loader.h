// libvulkan, opened at run time, and the instance.

#ifndef VKMX_LOADER_H
#define VKMX_LOADER_H
#include <stdbool.h>
#include <stdint.h>

#include "device/vulkan_functions.h"

// Opens libvulkan, the instance and, where validation is at hand, the messenger; the second call returns at once. They stay
// until the process ends: drivers that are unloaded and loaded again stop working after a dozen times. The caller holds
// runtime.lock.
int32_t instance_open(void);

// False when the driver lacks one of them.
bool load_device_functions(VkDevice device, DeviceFunctions *out);

#endif
