// A Vulkan layer that gives any device VK_KHR_pipeline_executable_properties, with figures that tests know: software drivers have none.
//
// The first pipeline that is compiled with statistics has 41 registers and 11,024 bytes of code. Each later pipeline
// has a register and 1,024 bytes more. All spill 48 bytes, with the bit above that NVIDIA sets. Asked in a way that the
// specification forbids, it ends the program.

#define VK_NO_PROTOTYPES
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define NAME VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME
#define FEATURES VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR
#define COUNT 4

typedef VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR Features;

static VkInstance instance;
static PFN_vkGetInstanceProcAddr next_instance;
static PFN_vkEnumerateDeviceExtensionProperties next_extensions;
static PFN_vkGetPhysicalDeviceFeatures2 next_features;
static PFN_vkGetDeviceProcAddr next_device;
static unsigned captured;
static int enabled;

static VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator, VkInstance *out) {
    VkLayerInstanceCreateInfo *link = (void *)(size_t)info->pNext;
    while (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO || link->function != VK_LAYER_LINK_INFO)
        link = (void *)(size_t)link->pNext;
    next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)next_instance(VK_NULL_HANDLE, "vkCreateInstance");
    VkResult result = create(info, allocator, out);
    if (result != VK_SUCCESS) return result;
    instance = *out;
    next_extensions = (PFN_vkEnumerateDeviceExtensionProperties)next_instance(instance, "vkEnumerateDeviceExtensionProperties");
    next_features = (PFN_vkGetPhysicalDeviceFeatures2)next_instance(instance, "vkGetPhysicalDeviceFeatures2");
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL list_extensions(VkPhysicalDevice physical, const char *layer, uint32_t *count, VkExtensionProperties *list) {
    uint32_t room = *count;
    VkResult result = next_extensions(physical, layer, count, list);
    if (list && *count == room) abort(); // no caller asks with less room than there is
    if (list) strcpy(list[*count].extensionName, NAME);
    ++*count;
    return result;
}

static void VKAPI_CALL read_features(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *features) {
    next_features(physical, features);
    for (VkBaseOutStructure *at = (void *)features; at; at = at->pNext)
        if (at->sType == FEATURES) ((Features *)at)->pipelineExecutableInfo = VK_TRUE;
}

// The driver must not see what it does not have.
static VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *allocator, VkDevice *out) {
    const char *names[32];
    VkDeviceCreateInfo changed = *info;
    changed.ppEnabledExtensionNames = names;
    changed.enabledExtensionCount = 0;
    int named = 0, chained = 0;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        if (strcmp(info->ppEnabledExtensionNames[i], NAME) == 0) named = 1;
        else names[changed.enabledExtensionCount++] = info->ppEnabledExtensionNames[i];
    }
    VkLayerDeviceCreateInfo *link = NULL;
    for (VkBaseOutStructure *at = (void *)(size_t)info->pNext; at; at = at->pNext) {
        VkLayerDeviceCreateInfo *found = (void *)at;
        if (at->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO && found->function == VK_LAYER_LINK_INFO) link = found;
        while (at->pNext && at->pNext->sType == FEATURES) {
            chained = ((Features *)at->pNext)->pipelineExecutableInfo == VK_TRUE;
            at->pNext = at->pNext->pNext;
        }
    }
    enabled = named && chained;
    next_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    return ((PFN_vkCreateDevice)next(instance, "vkCreateDevice"))(physical, &changed, allocator, out);
}

static VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo *info,
                                            const VkAllocationCallbacks *allocator, VkPipeline *out) {
    VkComputePipelineCreateInfo changed = *info;
    if (info->flags & VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR) captured++;
    changed.flags &= ~(VkPipelineCreateFlags)VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    if (count != 1) abort();
    return ((PFN_vkCreateComputePipelines)next_device(device, "vkCreateComputePipelines"))(device, cache, 1, &changed, allocator, out);
}

static VkResult VKAPI_CALL list_executables(VkDevice device, const VkPipelineInfoKHR *info, uint32_t *count,
                                            VkPipelineExecutablePropertiesKHR *list) {
    (void)device;
    if (!enabled || info->sType != VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR || !info->pipeline || list) abort();
    *count = 1;
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL list_statistics(VkDevice device, const VkPipelineExecutableInfoKHR *info, uint32_t *count,
                                           VkPipelineExecutableStatisticKHR *list) {
    (void)device;
    if (!enabled || info->sType != VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR || !info->pipeline || info->executableIndex != 0) abort();
    if (list && *count < COUNT) abort();
    *count = COUNT;
    if (!list) return VK_SUCCESS;
    for (int i = 0; i < COUNT; i++)
        if (list[i].sType != VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR || list[i].pNext) abort();
    const uint64_t values[] = {40 + captured, 10000 + 1024 * captured, ((uint64_t)1 << 36) + 48};
    const char *const names[] = {"Register Count", "Binary Size", "Local Memory Size"};
    for (int i = 0; i < COUNT - 1; i++) {
        strcpy(list[i].name, names[i]);
        list[i].format = VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR;
        list[i].value.u64 = values[i];
    }
    strcpy(list[COUNT - 1].name, "Tab\tand\nend");
    list[COUNT - 1].format = VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR;
    list[COUNT - 1].value.f64 = 1.5;
    return VK_SUCCESS;
}

#define ANSWER(asked, function) \
    if (strcmp(name, asked) == 0) return (PFN_vkVoidFunction)(function)

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL statistics_device(VkDevice device, const char *name) {
    ANSWER("vkGetDeviceProcAddr", statistics_device);
    ANSWER("vkCreateComputePipelines", create_pipelines);
    ANSWER("vkGetPipelineExecutablePropertiesKHR", list_executables);
    ANSWER("vkGetPipelineExecutableStatisticsKHR", list_statistics);
    return next_device(device, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL statistics_instance(VkInstance asking, const char *name) {
    ANSWER("vkGetInstanceProcAddr", statistics_instance);
    ANSWER("vkGetDeviceProcAddr", statistics_device);
    ANSWER("vkCreateInstance", create_instance);
    ANSWER("vkEnumerateDeviceExtensionProperties", list_extensions);
    ANSWER("vkGetPhysicalDeviceFeatures2", read_features);
    ANSWER("vkCreateDevice", create_device);
    return next_instance ? next_instance(asking, name) : NULL;
}
