// Indices of gather and scatter: negative ones count from the end, anything still outside is clamped.

#ifndef VKMX_WASM_INDICES_H
#define VKMX_WASM_INDICES_H
#include "kernel.h"

static inline uint32_t axis_index(const uint8_t *indices, size_t i, uint32_t dtype, uint32_t axis) {
    uint32_t bits = load_bits(indices, i, dtype);
    if (!DTYPE_IS_SIGNED(dtype)) return bits < axis ? bits : axis - 1u;
    int32_t index = (int32_t)bits;
    if (index < 0) index += (int32_t)axis;
    return index < 0 ? 0u : index >= (int32_t)axis ? axis - 1u : (uint32_t)index;
}

#endif
