// Command buffers.

#ifndef VKMX_COMMANDS_H
#define VKMX_COMMANDS_H
#include <stdint.h>

#include "state.h"

int32_t commands_new(Device *d, VkCommandBuffer *out);
int32_t commands_begin(Device *d, VkCommandBuffer commands, VkCommandBufferUsageFlags flags);

// One global memory barrier: never narrower in memory, never wider in stages than it must be.
void commands_barrier(Device *d, VkCommandBuffer commands, VkPipelineStageFlags2 from, VkAccessFlags2 made, VkPipelineStageFlags2 to,
                      VkAccessFlags2 seen);

#endif
