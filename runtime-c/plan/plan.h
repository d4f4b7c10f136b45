// Plans: words that are checked and turned into dispatches.

#ifndef VKMX_RUNTIME_PLAN_H
#define VKMX_RUNTIME_PLAN_H
#include <stdint.h>

#include "state.h"

int32_t plan_new(Device *d, const uint32_t *words, uint32_t count, Plan **out);
// Makes the pipelines of a Plan and forgets the rest. May run beside other calls.
int32_t plan_prepare(Device *d, const uint32_t *words, uint32_t count);
void plan_free(Device *d, Plan *plan);

#endif
