// The abilities of a physical device: limits, features, and why it may be unusable.

#ifndef VKMX_FACTS_H
#define VKMX_FACTS_H
#include <stdbool.h>
#include <stdint.h>

#include "state.h"

// The features as Vulkan chains them; one struct serves for asking and for enabling.
typedef struct FeatureChain {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR coopmat;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV coopmat2;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
    VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomic_float;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executable;
} FeatureChain;

// `mask` hides features and lowers limits, so that the device looks like a lesser one. It has features as facts_json
// names them and limits as name=value, separated by commas. "" or NULL hides nothing. VKRT_ERROR_ARGUMENT where it says
// anything else.
int32_t facts_read(VkPhysicalDevice physical, const char *mask, Facts *out);

// Fills `chain` with what a device is opened with, and `extensions` (at least 8) with the names that go with it.
void facts_enable(VkPhysicalDevice physical, const Facts *facts, FeatureChain *chain, const char **extensions, uint32_t *count);

// Threads of a subgroup that a pipeline has to ask for, 0: none. Kernels with `lanes` are written for 32.
uint32_t facts_subgroup(const Facts *facts, bool lanes);

// Why a kernel cannot run on a device; NULL: it can.
const char *kernel_missing(const KernelRow *row, const Facts *facts);

// The JSON of vkrt_device_info.
void facts_json(const Facts *facts, char *text, uint32_t capacity);

#endif
