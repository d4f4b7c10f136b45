// Kernels with their specialization constants as pipelines, kept in a file between runs.

#ifndef VKMX_PIPELINES_H
#define VKMX_PIPELINES_H
#include <stdint.h>

#include "state.h"

int32_t pipelines_init(Device *d, const char *cache_dir);
int32_t pipelines_save(Device *d);
void pipelines_deinit(Device *d);
// Fills in the pipelines of dispatches.
int32_t pipelines_make(Device *d, Dispatch *dispatches, uint32_t count);

#endif
