// The queue of a device: submissions, their tickets, waits.

#ifndef VKMX_QUEUE_H
#define VKMX_QUEUE_H
#include <stdint.h>

#include "state.h"

#define PATIENCE_MS 10000 // longest wait inside one call; the caller of vkrt_wait decides for itself

int32_t queue_init(Device *d);
void queue_deinit(Device *d);

uint64_t queue_completed(Device *d); // ticket of the last work that is done
int32_t queue_wait(Device *d, uint64_t ticket, uint64_t timeout_ms);
int32_t queue_idle(Device *d); // VKRT_ERROR_TIMEOUT where its work does not end; otherwise the device may be closed

// The open command buffer of copies, and the ticket that it will get.
int32_t queue_copies(Device *d, VkCommandBuffer *out);
uint64_t queue_next_ticket(Device *d);
int32_t queue_flush(Device *d); // submits it

// The open copies go in front. At most 1 + VKRT_MAX_TIMES buffers, of which one may stand there many times.
int32_t queue_submit(Device *d, const VkCommandBuffer *commands, uint32_t count, uint64_t *ticket);

#endif
