// What a physical device can do: limits, features, and why it may be unusable.

#ifndef VKMX_FACTS_H
#define VKMX_FACTS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader.h"

// Bits of Facts.features, in the order of the optional features in facts.c.
enum {
    FEATURE_FLOAT16,
    FEATURE_INT64_ATOMICS,
    FEATURE_COOPMAT,
    FEATURE_COOPMAT2,
    FEATURE_BFLOAT16,
    FEATURE_BFLOAT16_COOPMAT,
    FEATURE_INTEGER_DOT_FAST,
    FEATURE_COOPMAT_KERNELS, // all that the coopmat kernels of the table rely on
    FEATURE_SHUFFLE,         // in subgroups
    FEATURE_COUNT,
};

// The features as Vulkan chains them; one struct serves for asking and for enabling.
typedef struct FeatureChain {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR coopmat;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV coopmat2;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
} FeatureChain;

#define CHUNK_BYTES (64u << 20)

typedef struct Facts {
    VkPhysicalDeviceProperties core;
    VkPhysicalDeviceVulkan11Properties v11;
    VkPhysicalDeviceVulkan12Properties v12;
    VkPhysicalDeviceVulkan13Properties v13;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t heap_bytes;    // of the largest device-local heap
    uint32_t heap;          // its index
    uint64_t largest_alloc; // of one buffer
    uint32_t chunk_bytes;   // most that small buffers share; larger ones have memory of their own
    uint32_t family;        // queue family with compute
    uint32_t timestamp_bits;
    uint32_t features; // FEATURE_* bits
    uint32_t hidden;   // those that a mask takes away
    uint32_t subgroup_min, subgroup_max; // threads of a subgroup, as kernels may rely on them
    uint32_t subgroup_forced;            // all pipelines get subgroups of so many threads; 0: as the driver likes
    bool unified;      // the host sees all device memory
    bool memory_budget;
    bool portability_subset;
    char unusable[256]; // reason; "" where the device serves
} Facts;

// `mask` hides what the device has, so that it looks like a lesser one: features as facts_json names them and limits as
// name=value, separated by commas; "" or NULL hides nothing. VKRT_ERROR_ARGUMENT where it says anything else.
int32_t facts_read(VkPhysicalDevice physical, const char *mask, Facts *out);

// Fills `chain` with what a device is opened with, and `extensions` (at least 8) with the names that go with it.
void facts_enable(VkPhysicalDevice physical, const Facts *facts, FeatureChain *chain, const char **extensions, uint32_t *count);

// Threads of a subgroup that a pipeline has to ask for, 0: none. Kernels with `lanes` are written for 32.
uint32_t facts_subgroup(const Facts *facts, bool lanes);

// The JSON of vkrt_device_info.
void facts_json(const Facts *facts, char *text, uint32_t capacity);

#endif
