// out = scale * code + bias, each step rounded to the dtype of the scales as MLX does, then cast to the dtype of out.

#include "quantized.h"

INLINE float rounded(float x, uint32_t dtype) {
    if (dtype == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return dtype == DTYPE_F16 ? f16_value(f16_bits(x)) : x;
}

void k_dequantize(const Call *call) {
    PUSH(QuantizePush);
    uint32_t bits = call->spec[1], group = call->spec[2], dtype = call->spec[3], dtype_out = call->spec[4];
    const uint8_t *codes = call->buffer[0];
    size_t count = (size_t)p->rows * p->cols;
    for (size_t i = 0; i < count; i += 32, codes += 4 * bits) {
        float w[32];
        float scale = load_float(call->buffer[1], i / group, dtype), bias = load_float(call->buffer[2], i / group, dtype);
        unpack32(codes, bits, w);
        for (uint32_t j = 0; j < 32; j++) w[j] = rounded(rounded(scale * w[j], dtype) + bias, dtype);
        store_floats(call->buffer[3], i, w, 32, dtype_out);
    }
}
