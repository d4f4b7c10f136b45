// Bytes in and out of buffers.

#ifndef VKMX_TRANSFER_H
#define VKMX_TRANSFER_H
#include <stdint.h>

#include "state.h"

void transfer_deinit(Device *d);
int32_t transfer_write(Device *d, Buffer *buffer, uint64_t offset, const void *data, uint64_t bytes);
int32_t transfer_read(Device *d, Buffer *buffer, uint64_t offset, void *data, uint64_t bytes);
int32_t transfer_load(Device *d, Buffer *buffer, uint64_t offset, const char *path, uint64_t file_offset, uint64_t bytes);

#endif
