// The interface of a WASM kernel, and the typed loads and stores that mirror shaders/include/common.glsl.
//
// Kernel `name` of kernels.zon is `void k_name(const Call *call)`. If the table says that it can be cut, it is `void
// k_name(const Call *call, uint32_t first, uint32_t last)`. This form runs a range of its `chunks_name(call)` chunks on
// the calling thread. A chunk is some microseconds to a millisecond of work. Buffers in table order as pointers (NULL
// where absent), spec constants in table order (spec[0] = THREADS is of no use here), the push block. The whole problem
// is in the push block. Freestanding: no libc; memcpy and memset are compiler builtins, math is in
// shaders/include/math/math.h.

#ifndef VKMX_WASM_KERNEL_H
#define VKMX_WASM_KERNEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../shaders/include/dtype.h"
#include "../../shaders/include/plan.h"
#include "../../shaders/include/push.h"

typedef struct Call {
    uint8_t *buffer[PLAN_MAX_BUFFERS];
    const uint32_t *spec;
    const void *push;
} Call;

// Items of a chunk, a multiple of `unit`. A chunk takes some microseconds at least, and there are some dozens of chunks
// unless they grow too long. `cost` is the work of an item, a float added to another being 1.
static inline uint32_t chunk_grain(uint32_t items, uint32_t cost, uint32_t unit) {
    const uint32_t least = 8192 / (cost ? cost : 1), most = 65536 / (cost ? cost : 1);
    uint32_t grain = items / 48;
    grain = grain > most ? most : grain < least ? least : grain;
    return ((grain ? grain : 1) + unit - 1) / unit * unit;
}
static inline uint32_t chunk_count(uint32_t items, uint32_t grain) { return items / grain + (items % grain != 0); }
static inline uint32_t chunk_end(uint32_t last, uint32_t grain, uint32_t items) {
    return (uint64_t)last * grain < items ? last * grain : items;
}

#define PUSH(Type) const struct Type *p = (const struct Type *)call->push

static inline uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
static inline float bits_float(uint32_t u) { return __builtin_bit_cast(float, u); }

static inline float bf16_value(uint32_t bits) { return bits_float(bits << 16); }

// The conversions have no branches, so that loops of them become vectors; magnitudes are compared as int32, which is one
// instruction.
static inline uint32_t bf16_bits(float x) {
    uint32_t u = float_bits(x), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (int32_t)(u & 0x7fffffffu) > 0x7f800000 ? 0x7fc0u : rounded;
}

static inline float f16_value(uint32_t bits) {
    uint32_t sign = (bits & 0x8000u) << 16, u = bits & 0x7fffu;
    uint32_t special = (int32_t)u >= 0x7c00 ? 0x7f800000u : 0;
    return bits_float(float_bits(bits_float(u << 13) * 0x1p112f) | special | sign);
}

static inline uint32_t f16_bits(float x) {
    uint32_t all = float_bits(x), u = all & 0x7fffffffu;
    uint32_t subnormal = float_bits(bits_float(u) + 0.5f) - 0x3f000000u;
    uint32_t half = (u + 0x0fffu + ((u >> 13) & 1u) - 0x38000000u) >> 13;
    half = (int32_t)u < 0x38800000 ? subnormal : half;
    half = (int32_t)u >= 0x477ff000 ? 0x7c00u : half;
    half = (int32_t)u > 0x7f800000 ? 0x7e00u : half;
    return (all >> 16 & 0x8000u) | half;
}

static inline uint32_t load_bits(const uint8_t *a, size_t i, uint32_t dtype) {
    switch (dtype) {
        case DTYPE_F32:
        case DTYPE_U32:
        case DTYPE_I32: return ((const uint32_t *)a)[i];
        case DTYPE_F16: return float_bits(f16_value(((const uint16_t *)a)[i]));
        case DTYPE_BF16: return (uint32_t)((const uint16_t *)a)[i] << 16;
        case DTYPE_U16: return ((const uint16_t *)a)[i];
        case DTYPE_I16: return (uint32_t)(int32_t)((const int16_t *)a)[i];
        case DTYPE_I8: return (uint32_t)(int32_t)((const int8_t *)a)[i];
        default: return a[i];
    }
}

static inline void store_bits(uint8_t *a, size_t i, uint32_t dtype, uint32_t bits) {
    switch (dtype) {
        case DTYPE_F32:
        case DTYPE_U32:
        case DTYPE_I32: ((uint32_t *)a)[i] = bits; break;
        case DTYPE_F16: ((uint16_t *)a)[i] = (uint16_t)f16_bits(bits_float(bits)); break;
        case DTYPE_BF16: ((uint16_t *)a)[i] = (uint16_t)bf16_bits(bits_float(bits)); break;
        case DTYPE_U16:
        case DTYPE_I16: ((uint16_t *)a)[i] = (uint16_t)bits; break;
        default: a[i] = (uint8_t)bits; break;
    }
}

static inline float load_float(const uint8_t *a, size_t i, uint32_t dtype) {
    if (dtype == DTYPE_F32) return ((const float *)a)[i];
    if (dtype == DTYPE_F16) return f16_value(((const uint16_t *)a)[i]);
    return bf16_value(((const uint16_t *)a)[i]);
}

static inline void store_float(uint8_t *a, size_t i, uint32_t dtype, float x) { store_bits(a, i, dtype, float_bits(x)); }

// Runs of floats: the fast path of float32, one conversion loop for the 16-bit types.
static inline void load_floats(float *to, const uint8_t *a, size_t first, size_t n, uint32_t dtype) {
    if (dtype == DTYPE_F32) __builtin_memcpy(to, (const float *)a + first, n * 4);
    else if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) to[i] = bf16_value(((const uint16_t *)a)[first + i]);
    else
        for (size_t i = 0; i < n; i++) to[i] = f16_value(((const uint16_t *)a)[first + i]);
}

static inline void store_floats(uint8_t *a, size_t first, const float *from, size_t n, uint32_t dtype) {
    if (dtype == DTYPE_F32) __builtin_memcpy((float *)a + first, from, n * 4);
    else if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)a)[first + i] = (uint16_t)bf16_bits(from[i]);
    else
        for (size_t i = 0; i < n; i++) ((uint16_t *)a)[first + i] = (uint16_t)f16_bits(from[i]);
}

#endif
