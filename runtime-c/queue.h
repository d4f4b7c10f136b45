// The queue of a device: submissions, their tickets, waits.

#ifndef VKMX_QUEUE_H
#define VKMX_QUEUE_H
#include <stdint.h>

#include "state.h"

#define PATIENCE_MS 10000 // longest wait inside one call; the caller of vkrt_wait decides for itself

int32_t queue_init(Device *d);
void queue_deinit(Device *d);

static inline uint64_t ticket_of(uint32_t stream, uint64_t value) { return (uint64_t)stream << VKRT_STREAM_SHIFT | value; }
static inline uint32_t ticket_stream(uint64_t ticket) { return (uint32_t)(ticket >> VKRT_STREAM_SHIFT); }
static inline uint64_t ticket_value(uint64_t ticket) { return ticket & (((uint64_t)1 << VKRT_STREAM_SHIFT) - 1); }

int32_t queue_open(Device *d, uint32_t stream); // makes what a stream needs where it is used for the first time

bool queue_done(Device *d, const Uses *uses);
int32_t queue_wait_uses(Device *d, const Uses *uses);
int32_t queue_wait_all(Device *d); // for all that was submitted, the open copies with it
int32_t queue_wait(Device *d, uint64_t ticket, uint64_t timeout_ms);
int32_t queue_idle(Device *d); // VKRT_ERROR_TIMEOUT where its work does not end; otherwise the device may be closed

// The open command buffer of copies, and the ticket that it will get; they are on the first stream.
int32_t queue_copies(Device *d, VkCommandBuffer *out);
uint64_t queue_next_ticket(Device *d);
int32_t queue_flush(Device *d); // submits it

// Adds the work on other streams that must end before work on `stream` reads, or writes, a range.
void queue_behind(Device *d, uint32_t stream, const Range *range, bool write, Uses *behind);

// After the given work of other streams. The open copies go in front on the first stream. At most 1 + VKRT_MAX_TIMES
// buffers, of which one may stand there many times.
int32_t queue_submit(Device *d, uint32_t stream, const Uses *behind, const VkCommandBuffer *commands, uint32_t count, uint64_t *ticket);

// Submits one buffer with two tickets on the first stream, the second one larger by 1. `event` is set in it when the first one is done.
int32_t queue_submit_pair(Device *d, const Uses *behind, VkCommandBuffer commands, VkEvent event, uint64_t *second);

#endif
