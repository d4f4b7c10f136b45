// Timestamps around the dispatches of a Plan.

#ifndef VKMX_PROFILE_H
#define VKMX_PROFILE_H
#include <stdbool.h>
#include <stdint.h>

#include "state.h"

int32_t profile_switch(Device *d, bool on);
int32_t profile_prepare(Device *d, Recording *recording, uint32_t dispatches);
void profile_reset(Device *d, VkCommandBuffer commands, Recording *recording, uint32_t dispatches);
void profile_mark(Device *d, VkCommandBuffer commands, Recording *recording, uint32_t query);
int32_t profile_read(Device *d, Plan *plan, double *nanoseconds, uint32_t capacity, uint32_t *count);

#endif
