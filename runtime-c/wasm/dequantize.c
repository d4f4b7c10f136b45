// out = scale * code + bias, each step rounded to a dtype as MLX does, then cast to the dtype of out; of all rows, or of those at
// indices.

#include "indices.h"
#include "quantized.h"

INLINE float rounded(float x, uint32_t dtype) {
    if (dtype == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return dtype == DTYPE_F16 ? f16_value(f16_bits(x)) : x;
}

void k_dequantize(const Call *call) {
    PUSH(DequantizePush);
    uint32_t bits = call->spec[1], group = call->spec[2], dtype = call->spec[3], dtype_out = call->spec[4], stored = call->spec[5],
             index = call->spec[6];
    const uint8_t *indices = call->buffer[4];
    for (uint32_t row = 0; row < p->rows; row++) {
        size_t first = (size_t)(indices ? axis_index(indices, row, index, p->table) : row) * p->cols;
        const uint8_t *codes = call->buffer[0] + first / 32 * 4 * bits;
        for (uint32_t i = 0; i < p->cols; i += 32, codes += 4 * bits) {
            float w[32];
            float scale = rounded(load_float(call->buffer[1], (first + i) / group, stored), dtype);
            float bias = rounded(load_float(call->buffer[2], (first + i) / group, stored), dtype);
            unpack32(codes, bits, w);
            for (uint32_t j = 0; j < 32; j++) w[j] = rounded(rounded(scale * w[j], dtype) + bias, dtype);
            store_floats(call->buffer[3], (size_t)row * p->cols + i, w, 32, dtype_out);
        }
    }
}
