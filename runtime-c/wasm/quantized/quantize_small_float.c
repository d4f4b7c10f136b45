// Quantization of groups along the rows to small floats; shaders/ops/quantized/quantize_small_float.comp has the formulas.

#include "simd.h"

#include "../../../shaders/include/math/small_float.h"

enum { MIN_EXPONENT = -127 }; // of a scale of one byte

INLINE uint32_t group_of(const Call *call) { return call->spec[1] == MODE_NVFP4 ? 16 : 32; }

static uint32_t groups_of(const Call *call) {
    PUSH(QuantizePush);
    return (uint32_t)((size_t)p->rows * p->cols / group_of(call));
}

static uint32_t groups_per_chunk(const Call *call) { return chunk_grain(groups_of(call), 8 * group_of(call), 1); }

uint32_t chunks_quantize_small_float(const Call *call) { return chunk_count(groups_of(call), groups_per_chunk(call)); }

// w / scale as a code where the group has infinities or NaN: MLX divides by 0 then.
static uint32_t lost_code(float w, uint32_t mode, uint32_t dtype) {
    if (mode != MODE_MXFP8) return 0;
    if (dtype == DTYPE_BF16 && (m_isnan(w) || w == 0)) return 126;
    return 126 | (w == 0 ? 128 : BITS(w) >> 24 & 128);
}

// `mode` and `dtype` are constants at every call.
INLINE void quantize_group(const float *w, uint8_t *codes, uint8_t *scale, float unit, uint32_t mode, uint32_t dtype) {
    const uint32_t group = mode == MODE_NVFP4 ? 16 : 32;
    uint32_t size = 0;
    for (uint32_t i = 0; i < group; i++) {
        uint32_t bits = BITS(w[i]) & 0x7fffffffu; // NaN is the largest
        size = bits > size ? bits : size;
    }
    bool lost = size >= 0x7f800000u;
    float most = as_dtype(FROM_BITS(size) / (mode == MODE_MXFP8 ? 448.0f : 6.0f), dtype), step;
    if (mode == MODE_NVFP4) {
        *scale = (uint8_t)e4m3_code(most * unit);
        step = e4m3_value(*scale);
    } else {
        int exponent = most == 0 || lost ? 0 : ceil_log2(most);
        exponent = exponent < MIN_EXPONENT ? MIN_EXPONENT : exponent;
        *scale = (uint8_t)(lost ? (dtype == DTYPE_F32 ? 128 : 0) : exponent + 127);
        step = m_scale(1, exponent);
    }
    uint32_t found[32];
    for (uint32_t i = 0; i < group; i++) {
        float number = as_dtype(w[i] / step, dtype);
        if (mode == MODE_NVFP4) found[i] = step == 0 ? 0 : e2m1_code(number * unit, DTYPE_F32);
        else found[i] = lost ? lost_code(w[i], mode, dtype) : mode == MODE_MXFP8 ? e4m3_code(number) : e2m1_code(number, dtype);
    }
    if (mode == MODE_MXFP8)
        for (uint32_t i = 0; i < group; i++) codes[i] = (uint8_t)found[i];
    else
        for (uint32_t i = 0; i < group; i += 2) codes[i / 2] = (uint8_t)(found[i] | found[i + 1] << 4);
}

INLINE void quantize_groups(const Call *call, size_t first, size_t end, uint32_t mode, uint32_t dtype) {
    const uint32_t group = group_of(call), bytes = mode == MODE_MXFP8 ? group : group / 2;
    float unit = call->buffer[3] ? 2688.0f / load_float(call->buffer[3], 0, DTYPE_F32) : 1;
    for (size_t g = first; g < end; g++) {
        float w[32];
        load_run(w, call->buffer[0], g * group, group, dtype);
        quantize_group(w, call->buffer[1] + g * bytes, call->buffer[2] + g, unit, mode, dtype);
    }
}

void k_quantize_small_float(const Call *call, uint32_t first, uint32_t last) {
    const uint32_t mode = call->spec[1], dtype = call->spec[2], grain = groups_per_chunk(call);
    const size_t from = (size_t)first * grain, end = chunk_end(last, grain, groups_of(call));
#define EACH_DTYPE(MODE) \
    if (mode == MODE && dtype == DTYPE_F32) quantize_groups(call, from, end, MODE, DTYPE_F32); \
    if (mode == MODE && dtype == DTYPE_F16) quantize_groups(call, from, end, MODE, DTYPE_F16); \
    if (mode == MODE && dtype == DTYPE_BF16) quantize_groups(call, from, end, MODE, DTYPE_BF16);
    EACH_DTYPE(MODE_MXFP4)
    EACH_DTYPE(MODE_MXFP8)
    EACH_DTYPE(MODE_NVFP4)
#undef EACH_DTYPE
}
