// A driver's statistics of a compiled pipeline.

#ifndef VKMX_STATISTICS_H
#define VKMX_STATISTICS_H
#include <stdint.h>

#include "state.h"

// "name<TAB>value" a line; those that pass `capacity` are left out.
int32_t statistics_read(Device *d, const Dispatch *dispatch, char *text, uint32_t capacity);

#endif
