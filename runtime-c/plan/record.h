// Plans into command buffers. Each takes a Plan whose slots are bound.

#ifndef VKMX_RECORD_H
#define VKMX_RECORD_H
#include <stdint.h>

#include "state.h"

// One whole run, into the recording's first buffer. It writes the tables of addresses, which all other buffers read too.
int32_t record_first(Device *d, Plan *plan, Recording *r);

// What many runs need: the preamble, and buffers of 1 << i runs for the bits of `wanted`.
int32_t record_more(Device *d, Plan *plan, Recording *r, uint32_t wanted);

// Begins a command buffer that may follow anything; one whole run in it.
int32_t record_begin(Device *d, VkCommandBuffer commands);
int32_t record_into(Device *d, VkCommandBuffer commands, Plan *plan, Recording *r);

#endif
