// out = scale * code + bias, each step rounded to a dtype as MLX does, then cast to the dtype of out. It takes all
// rows, or those at indices. In mode symmetric it is scale * (code - 2^(bits - 1)), rounded once. Small floats: see shaders/ops/quantized/dequantize.comp.

#include "indexing/indices.h"
#include "quantized/quantized.h"

static void dequantize_small_row(const Call *call, size_t first, size_t to) {
    PUSH(DequantizePush);
    uint32_t bits = call->spec[1], group = call->spec[2], dtype_out = call->spec[4], mode = call->spec[7];
    float whole = call->buffer[5] ? load_float(call->buffer[5], 0, DTYPE_F32) / 2688.0f : 1;
    for (uint32_t i = 0; i < p->cols; i += group) {
        float w[32], scale = as_dtype(scale_value(call->buffer[1][(first + i) / group], mode), dtype_out) * whole;
        const uint8_t *codes = call->buffer[0] + (first + i) / 8 * bits;
        for (uint32_t j = 0; j < group; j++) {
            uint32_t code = bits == 8 ? codes[j] : codes[j / 2] >> j % 2 * 4 & 15;
            w[j] = number_value(code, mode) * scale;
        }
        store_floats(call->buffer[3], to + i, w, group, dtype_out);
    }
}

static void dequantize_symmetric_row(const Call *call, size_t first, size_t to) {
    PUSH(DequantizePush);
    Quantized q = {call->buffer[0], call->buffer[1], NULL, p->cols, call->spec[1], call->spec[2], call->spec[5], MODE_SYMMETRIC};
    for (uint32_t i = 0; i < p->cols; i += 16) {
        float w[16];
        sixteen_numbers(&q, first + i, w);
        store_floats(call->buffer[3], to + i, w, 16, call->spec[4]);
    }
}

void k_dequantize(const Call *call) {
    PUSH(DequantizePush);
    uint32_t bits = call->spec[1], group = call->spec[2], dtype = call->spec[3], dtype_out = call->spec[4], stored = call->spec[5],
             index = call->spec[6];
    const uint8_t *indices = call->buffer[4];
    for (uint32_t row = 0; row < p->rows; row++) {
        size_t first = (size_t)(indices ? axis_index(indices, row, index, p->table) : row) * p->cols;
        if (call->spec[7] == MODE_SYMMETRIC) {
            dequantize_symmetric_row(call, first, (size_t)row * p->cols);
            continue;
        }
        if (call->spec[7] != MODE_AFFINE) {
            dequantize_small_row(call, first, (size_t)row * p->cols);
            continue;
        }
        const uint8_t *codes = call->buffer[0] + first / 32 * 4 * bits;
        for (uint32_t i = 0; i < p->cols; i += 32, codes += 4 * bits) {
            float w[32];
            float scale = as_dtype(load_float(call->buffer[1], (first + i) / group, stored), dtype);
            float bias = as_dtype(load_float(call->buffer[2], (first + i) / group, stored), dtype);
            unpack32(codes, bits, w);
            for (uint32_t j = 0; j < 32; j++) w[j] = as_dtype(as_dtype(scale * w[j], dtype) + bias, dtype);
            store_floats(call->buffer[3], (size_t)row * p->cols + i, w, 32, dtype_out);
        }
    }
}
