// Plans on the device: recorded once for each binding of their slots, then replayed.

#ifndef VKMX_RECORDING_H
#define VKMX_RECORDING_H
#include <stdint.h>

#include "state.h"

// Runs a Plan `times` times in a row. `slots`: four words a slot, as vkrt_plan_run takes them.
int32_t plan_run(Device *d, Plan *plan, const uint32_t *slots, uint32_t times, uint32_t stream, uint64_t *ticket);

void recording_retire(Device *d, Recording *recording); // it serves again once the device is done with it
void recordings_deinit(Device *d);

#endif
