// A device, opened and closed.

#ifndef VKMX_DEVICE_H
#define VKMX_DEVICE_H
#include <stdint.h>

#include "state.h"

int32_t device_open(uint32_t index, const char *mask, const char *cache_dir, Device **out);
void device_close(Device *d); // after queue_idle()

#endif
