// Affine quantization of groups along the rows, with MLX's arithmetic: the edge of larger magnitude and 0 stay exact.
//
//   mask = |min| > |max|; scale = max((max - min) / (2^bits - 1), 1e-7), negated unless mask; edge = mask ? min : max
//   q0 = rint(edge / scale); q0 != 0: scale = edge / q0, bias = edge; else bias = 0
//   code = clamp(rint((w - bias) / scale), 0, 2^bits - 1); only then are scale and bias rounded to the dtype of w
//   with one bit, code 0 stands for min and code 1 for max: scale = max(max - min, 1e-7), bias = min
//
// Divisions are not replaced by products with a reciprocal, which would move codes. NaN is passed over.

#include "simd.h"

#define MAX_GROUP 128

INLINE float rint_even(float x) { return __builtin_rintf(x); }

INLINE f4 f4_min(f4 a, f4 b) { return -f4_max(-a, -b); } // the smaller of each lane; a where one is NaN

// Eight bytes below 2^bits to 8 * bits bits: neighbours move together, then pairs, then fours.
INLINE uint64_t pack_eight(uint64_t x, uint32_t bits) {
    x = (x & 0x00ff00ff00ff00ffull) | (x & 0xff00ff00ff00ff00ull) >> (8 - bits);
    x = (x & 0x0000ffff0000ffffull) | (x & 0xffff0000ffff0000ull) >> (16 - 2 * bits);
    return (x & 0xffffffffull) | x >> 32 << 4 * bits;
}

static uint32_t groups_per_chunk(const Call *call) {
    PUSH(QuantizePush);
    uint32_t group = call->spec[2];
    return chunk_grain((uint32_t)((size_t)p->rows * p->cols / group), 4 * group, 1);
}

uint32_t chunks_quantize(const Call *call) {
    PUSH(QuantizePush);
    return chunk_count((uint32_t)((size_t)p->rows * p->cols / call->spec[2]), groups_per_chunk(call));
}

void k_quantize(const Call *call, uint32_t first, uint32_t last) {
    PUSH(QuantizePush);
    const uint32_t bits = call->spec[1], group = call->spec[2], dtype = call->spec[3], grain = groups_per_chunk(call);
    const float most = (float)((1u << bits) - 1);
    const uint32_t end = chunk_end(last, grain, (uint32_t)((size_t)p->rows * p->cols / group));
    uint8_t *codes = call->buffer[1] + (size_t)first * grain * (group / 8) * bits;
    for (size_t g = (size_t)first * grain; g < end; g++) {
        float w[MAX_GROUP];
        load_run(w, call->buffer[0], g * group, group, dtype);
        f4 lows = f4_splat(__builtin_inff()), highs = -lows;
        for (uint32_t i = 0; i < group; i += 4) {
            lows = f4_min(lows, f4_load(w + i));
            highs = f4_max(highs, f4_load(w + i));
        }
        float low = lows[0], high = highs[0];
        for (int i = 1; i < 4; i++) {
            low = lows[i] < low ? lows[i] : low;
            high = highs[i] > high ? highs[i] : high;
        }
        bool mask = bits == 1 || __builtin_fabsf(low) > __builtin_fabsf(high);
        float scale = (high - low) / most, edge = mask ? low : high, bias = 0;
        scale = scale > 1e-7f ? scale : 1e-7f;
        scale = mask ? scale : -scale;
        float q0 = rint_even(edge / scale);
        if (bits == 1) bias = low;
        else if (q0 != 0) scale = edge / q0, bias = edge;
        for (uint32_t i = 0; i < group; i += 8, codes += bits) {
            uint64_t eight = 0;
            for (uint32_t j = 0; j < 8; j += 4) {
                f4 code = __builtin_elementwise_roundeven((f4_load(w + i + j) - f4_splat(bias)) / f4_splat(scale));
                code = f4_min(f4_splat(most), f4_max(f4_splat(0), code)); // NaN becomes 0
                i4 whole = __builtin_convertvector(code, i4);
                uint32_t four = (uint32_t)(whole[0] | whole[1] << 8 | whole[2] << 16) | (uint32_t)whole[3] << 24;
                eight |= (uint64_t)four << 8 * j;
            }
            uint64_t window = pack_eight(eight, bits);
            for (uint32_t j = 0; j < bits; j++) codes[j] = (uint8_t)(window >> 8 * j);
        }
        store_float(call->buffer[2], g, dtype, scale);
        store_float(call->buffer[3], g, dtype, bias);
    }
}
