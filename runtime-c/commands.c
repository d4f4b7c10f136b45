// Command buffers: making one, beginning it, a barrier in it.

#include "commands.h"

#include "failure.h"

int32_t commands_new(Device *d, VkCommandBuffer *out) {
    VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = d->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    return VK(d, AllocateCommandBuffers, d->device, &info, out);
}

int32_t commands_begin(Device *d, VkCommandBuffer commands, VkCommandBufferUsageFlags flags) {
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, .flags = flags};
    return VK(d, BeginCommandBuffer, commands, &info);
}

void commands_barrier(Device *d, VkCommandBuffer commands, VkPipelineStageFlags2 from, VkAccessFlags2 made, VkPipelineStageFlags2 to,
                      VkAccessFlags2 seen) {
    VkMemoryBarrier2 barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
        .srcStageMask = from,
        .srcAccessMask = made,
        .dstStageMask = to,
        .dstAccessMask = seen,
    };
    VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO, .memoryBarrierCount = 1, .pMemoryBarriers = &barrier};
    if (device_fault(d, "vkCmdPipelineBarrier2")) return; // tests see whether anybody notices
    d->vk.CmdPipelineBarrier2(commands, &info);
}
