// Drivers that are installed and cannot be loaded.

#ifndef VKMX_DRIVERS_H
#define VKMX_DRIVERS_H
#include <stdint.h>

// Fills `text` with a line "manifest\tlibrary\treason" for each, and answers their number.
uint32_t driver_failures(char *text, uint32_t capacity);

#endif
