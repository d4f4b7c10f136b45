// Kernels made at run time, and kernels with their specialization constants as pipelines, kept in a file between runs.

#ifndef VKMX_PIPELINES_H
#define VKMX_PIPELINES_H
#include <stdint.h>

#include "state.h"

int32_t pipelines_init(Device *d, const char *cache_dir);
int32_t pipelines_save(Device *d);
// The row of a kernel of the table or of one made at run time; NULL: there is none.
const KernelRow *kernel_find(const Device *d, uint32_t id);
// Adds a kernel whose `row` says all but its name.
int32_t kernel_make(Device *d, const char *name, const uint32_t *spirv, uint32_t count, KernelRow row, uint32_t *id);
void pipelines_deinit(Device *d);
// Fills in the pipelines of dispatches.
int32_t pipelines_make(Device *d, Dispatch *dispatches, uint32_t count);
// Compiles the pipeline of a dispatch once more, such that the driver can be asked about it; the caller destroys it.
int32_t pipeline_capture(Device *d, const Dispatch *dispatch, VkPipeline *out);

#endif
