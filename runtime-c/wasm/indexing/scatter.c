// scatter: out[outer][index(k)][inner] = OP(out[…], updates[outer][k][inner]), k in order: equal indices give the same
// result on every run and the last assignment wins. See shaders/ops/indexing/scatter.comp.

#include "../../../shaders/include/combine_wide.h"
#include "indexing/indices.h"
#include "wide.h"

static float combine_float(uint32_t op, float a, float b) {
    switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return m_minimum(a, b);
        case OP_MAX: return m_maximum(a, b);
        default: return b;
    }
}

static uint32_t combine_uint(uint32_t op, uint32_t a, uint32_t b) {
    switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return a < b ? a : b;
        case OP_MAX: return a > b ? a : b;
        default: return b;
    }
}

static uint32_t combine(uint32_t op, uint32_t dtype, uint32_t a, uint32_t b) {
    if (DTYPE_IS_FLOAT(dtype)) return float_bits(combine_float(op, bits_float(a), bits_float(b)));
    if (DTYPE_IS_SIGNED(dtype) && op == OP_MIN) return (int32_t)a < (int32_t)b ? a : b;
    if (DTYPE_IS_SIGNED(dtype) && op == OP_MAX) return (int32_t)a > (int32_t)b ? a : b;
    uint32_t bits = combine_uint(op, a, b);
    return dtype == DTYPE_BOOL ? bits != 0 : bits;
}

static double combine_double(uint32_t op, double a, double b) {
    switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return a != a || a < b ? a : b;
        case OP_MAX: return a != a || a > b ? a : b;
        default: return b;
    }
}

static void update(uint32_t op, uint32_t dtype, uint8_t *out, size_t to, const uint8_t *updates, size_t from) {
#define COMBINE(Type, function) \
    { \
        Type *at = (Type *)out + to; \
        *at = function(op, *at, ((const Type *)updates)[from]); \
        return; \
    }
    switch (dtype) {
        case DTYPE_I64: COMBINE(int64_t, combine_long)
        case DTYPE_U64: COMBINE(uint64_t, combine_ulong)
        case DTYPE_F64: COMBINE(double, combine_double)
        case DTYPE_C64: COMBINE(Complex, combine_complex)
    }
#undef COMBINE
    store_bits(out, to, dtype, combine(op, dtype, load_bits(out, to, dtype), load_bits(updates, from, dtype)));
}

void k_scatter(const Call *call) {
    PUSH(GatherPush);
    const uint32_t dtype = call->spec[1], dtype_index = call->spec[2], op = call->spec[4];
    const bool along = call->spec[3] != 0;
    const uint8_t *updates = call->buffer[0], *indices = call->buffer[1];
    uint8_t *out = call->buffer[2];
    const size_t bytes = DTYPE_BYTES(dtype);
    for (uint32_t o = 0; o < p->outer; o++)
        for (uint32_t k = 0; k < p->n; k++) {
            const size_t from = ((size_t)o * p->n + k) * p->inner, base = (size_t)o * p->axis;
            if (!along) {
                const size_t to = (base + axis_index(indices, k, dtype_index, p->axis)) * p->inner;
                if (op == OP_ASSIGN) {
                    __builtin_memcpy(out + to * bytes, updates + from * bytes, p->inner * bytes);
                    continue;
                }
                for (uint32_t j = 0; j < p->inner; j++) update(op, dtype, out, to + j, updates, from + j);
                continue;
            }
            for (uint32_t j = 0; j < p->inner; j++) {
                const size_t to = (base + axis_index(indices, (uint32_t)from + j, dtype_index, p->axis)) * p->inner + j;
                update(op, dtype, out, to, updates, from + j);
            }
        }
}
