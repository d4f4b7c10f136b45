// The kernel table as the WASM executor sees it; `zig build` generates its rows from shaders/kernels.zon.

#ifndef VKMX_WASM_KERNEL_TABLE_H
#define VKMX_WASM_KERNEL_TABLE_H
#include "kernel.h"

typedef struct KernelRow {
    void (*run)(const Call *call); // NULL: cut into chunks, or Vulkan only
    uint32_t (*chunks)(const Call *call);
    void (*run_chunks)(const Call *call, uint32_t first, uint32_t last);
    uint8_t weight; // of a chunk in the budget of a slice
    uint8_t buffers;
    uint16_t optional; // bit i: buffer i may be absent (NULL)
    uint8_t spec;
    uint8_t push_words;
} KernelRow;

extern const KernelRow kernel_table[];
extern const uint32_t kernel_count;
extern const uint32_t kernel_abi_hash;

#endif
