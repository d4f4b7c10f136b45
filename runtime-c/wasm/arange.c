// arange: out[i] = start + i * step in the domain of the output's dtype; a step of 0 fills.

#include "kernel.h"

void k_arange(const Call *call) {
    PUSH(ArangePush);
    const uint32_t dtype = call->spec[1];
    uint8_t *out = call->buffer[0];
    const float start = bits_float(p->start), step = bits_float(p->step);
    const uint64_t wide_start = (uint64_t)p->start_high << 32 | p->start, wide_step = (uint64_t)p->step_high << 32 | p->step;
    const bool fills = (p->step | p->step_high) == 0, is_float = DTYPE_IS_FLOAT(dtype);
    if (fills && wide_start == 0) { // zeros, such as a new cache
        __builtin_memset(out, 0, (size_t)p->count * DTYPE_BYTES(dtype));
        return;
    }
    if (dtype == DTYPE_F64 && !fills) {
        const double first = __builtin_bit_cast(double, wide_start), by = __builtin_bit_cast(double, wide_step);
        for (uint32_t i = 0; i < p->count; i++) ((double *)out)[i] = first + (double)i * by;
        return;
    }
    if (DTYPE_IS_WIDE(dtype)) { // of complex64 only fills
        for (uint32_t i = 0; i < p->count; i++) ((uint64_t *)out)[i] = wide_start + i * wide_step;
        return;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t bits = p->start + i * p->step; // int and uint agree in their bits
        if (is_float) bits = fills ? p->start : float_bits(start + (float)i * step);
        if (dtype == DTYPE_BOOL) bits = bits != 0;
        store_bits(out, i, dtype, bits);
    }
}
