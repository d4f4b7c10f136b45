// Which form the products of packed matrices take.

#ifndef VKMX_WASM_PACKED_KERNELS_H
#define VKMX_WASM_PACKED_KERNELS_H
#include <stdbool.h>

extern bool packed_quads; // quads instead of pairs: see packed.h

#endif
