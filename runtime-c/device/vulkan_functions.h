// The Vulkan headers, and the one list of the functions that the runtime calls.

#ifndef VKMX_VULKAN_FUNCTIONS_H
#define VKMX_VULKAN_FUNCTIONS_H
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "device/vk_extra.h"

// clang-format off
#define GLOBAL_FUNCTIONS(X) X(CreateInstance) X(EnumerateInstanceExtensionProperties)

#define INSTANCE_FUNCTIONS(X) \
    X(DestroyInstance) X(EnumeratePhysicalDevices) X(EnumerateDeviceExtensionProperties) X(CreateDevice) \
    X(GetDeviceProcAddr) X(GetPhysicalDeviceProperties) X(GetPhysicalDeviceProperties2) \
    X(GetPhysicalDeviceFeatures2) X(GetPhysicalDeviceMemoryProperties2) X(GetPhysicalDeviceQueueFamilyProperties)

#define DEVICE_FUNCTIONS(X) \
    X(DestroyDevice) X(GetDeviceQueue) X(QueueSubmit2) X(QueueWaitIdle) X(AllocateMemory) X(FreeMemory) X(MapMemory) \
    X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements) X(BindBufferMemory) X(GetBufferDeviceAddress) \
    X(CreateShaderModule) X(DestroyShaderModule) X(CreatePipelineLayout) X(DestroyPipelineLayout) \
    X(CreatePipelineCache) X(DestroyPipelineCache) X(GetPipelineCacheData) X(CreateComputePipelines) \
    X(DestroyPipeline) X(CreateCommandPool) X(DestroyCommandPool) X(AllocateCommandBuffers) X(BeginCommandBuffer) \
    X(EndCommandBuffer) X(CmdBindPipeline) X(CmdPushConstants) X(CmdDispatch) X(CmdPipelineBarrier2) \
    X(CmdCopyBuffer) X(CreateQueryPool) X(DestroyQueryPool) X(CmdResetQueryPool) X(CmdWriteTimestamp2) \
    X(GetQueryPoolResults) X(CreateSemaphore) X(DestroySemaphore) X(WaitSemaphores) X(GetSemaphoreCounterValue) \
    X(CreateEvent) X(DestroyEvent) X(GetEventStatus) X(ResetEvent) X(CmdSetEvent2)

// clang-format on

#define MEMBER(name) PFN_vk##name name;
typedef struct GlobalFunctions {
    GLOBAL_FUNCTIONS(MEMBER)
} GlobalFunctions;
typedef struct InstanceFunctions {
    INSTANCE_FUNCTIONS(MEMBER)
} InstanceFunctions;
typedef struct DeviceFunctions {
    DEVICE_FUNCTIONS(MEMBER)
} DeviceFunctions;
#undef MEMBER

#endif
