// Two Plans in one command buffer.

#ifndef VKMX_PAIR_H
#define VKMX_PAIR_H
#include <stdint.h>

#include "state.h"

// A Plan and its slots, as vkrt_plan_run takes them.
typedef struct Work {
    Plan *plan;
    const uint32_t *slots;
} Work;

// Runs two Plans once on the first stream, one after the other. The ticket of the second is that of the first plus 1.
int32_t pair_run(Device *d, const Work work[2], uint64_t *first);

void pairs_deinit(Device *d);

#endif
