// Affine quantization of groups along the rows, with MLX's arithmetic: the edge of larger magnitude and 0 stay exact.
//
//   mask = |min| > |max|; scale = max((max - min) / (2^bits - 1), 1e-7), negated unless mask; edge = mask ? min : max
//   q0 = rint(edge / scale); q0 != 0: scale = edge / q0, bias = edge; else bias = 0
//   code = clamp(rint((w - bias) / scale), 0, 2^bits - 1); only then are scale and bias rounded to the dtype of w

#include "simd.h"

INLINE float rint_even(float x) { return __builtin_rintf(x); }

void k_quantize(const Call *call) {
    PUSH(QuantizePush);
    uint32_t bits = call->spec[1], group = call->spec[2], dtype = call->spec[3];
    float most = (float)((1u << bits) - 1);
    size_t groups = (size_t)p->rows * p->cols / group;
    uint8_t *codes = call->buffer[1];
    for (size_t g = 0; g < groups; g++) {
        float w[128];
        load_run(w, call->buffer[0], g * group, group, dtype);
        float low = w[0], high = w[0];
        for (uint32_t i = 1; i < group; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        bool mask = __builtin_fabsf(low) > __builtin_fabsf(high);
        float scale = (high - low) / most, edge = mask ? low : high, bias = 0;
        scale = scale > 1e-7f ? scale : 1e-7f;
        scale = mask ? scale : -scale;
        float q0 = rint_even(edge / scale);
        if (q0 != 0) scale = edge / q0, bias = edge;
        for (uint32_t i = 0; i < group; i += 8, codes += bits) {
            uint64_t window = 0;
            for (uint32_t j = 0; j < 8; j++) {
                float code = rint_even((w[i + j] - bias) / scale);
                code = code > 0 ? code : 0;
                window |= (uint64_t)(uint32_t)(code < most ? code : most) << bits * j;
            }
            for (uint32_t j = 0; j < bits; j++) codes[j] = (uint8_t)(window >> 8 * j);
        }
        store_float(call->buffer[2], g, dtype, scale);
        store_float(call->buffer[3], g, dtype, bias);
    }
}
