// The kernel table as the Vulkan runtime sees it. `zig build` generates its rows from shaders/kernels.zon and embeds
// the SPIR-V. A kernel that this build left out has no SPIR-V (spirv NULL), and plans that ask for it are refused.

#ifndef VKMX_KERNEL_TABLE_H
#define VKMX_KERNEL_TABLE_H
#include <stddef.h>
#include <stdint.h>

// Features that a kernel needs beyond the baseline, as `needs` in kernels.zon names it; NEEDS_WASM: it has no shader.
enum { NEEDS_COOPMAT = 1, NEEDS_SHUFFLE = 2, NEEDS_INT64_ATOMICS = 4, NEEDS_WASM = 8, NEEDS_BFLOAT16 = 16, NEEDS_NARROW = 32 };

typedef struct KernelRow {
    const char *name;
    const uint32_t *spirv; // NULL: not in this build
    size_t spirv_bytes;
    uint8_t buffers;   // number of addresses before the push block
    uint16_t reads;    // bit i: buffer i is read
    uint16_t writes;   // bit i: buffer i is written
    uint16_t optional; // bit i: buffer i may be absent (address 0)
    uint8_t columns;   // buffers in a row of a table, whose address comes after theirs; 0: no table
    uint32_t column_reads, column_writes;
    uint8_t spec;       // specialisation constants, ids 0..spec-1, 4 bytes each; 0 is the workgroup size
    uint8_t push_words; // 4-byte words of the push block
    uint8_t needs;      // NEEDS_* bits
    uint8_t axes;       // of the workgroup that the first specialisation constants say: 1, or 3 of kernels made at run time
} KernelRow;

extern const KernelRow kernel_table[];
extern const uint32_t kernel_count;
extern const uint32_t kernel_abi_hash; // the result of vkrt_abi()

#endif
