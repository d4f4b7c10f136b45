// What matmul and matvec share: the operands of a batch row, and the products of both kinds of dtypes.

#ifndef VKMX_WASM_MATMUL_H
#define VKMX_WASM_MATMUL_H
#include "gemm.h"

typedef struct Operands {
    const uint8_t *a, *b;
    uint8_t *out;
} Operands;

INLINE Operands matmul_operands(const Call *call, uint32_t batch) {
    PUSH(MatmulPush);
    ptrdiff_t a = 0, b = 0;
    uint32_t rest = batch;
    for (int d = 2; d >= 0; d--) {
        uint32_t i = rest % p->batch_shape[d];
        rest /= p->batch_shape[d];
        a += (ptrdiff_t)i * p->a_batch_strides[d];
        b += (ptrdiff_t)i * p->b_batch_strides[d];
    }
    return (Operands){
        call->buffer[0] + a * (ptrdiff_t)DTYPE_BYTES(call->spec[1]),
        call->buffer[1] + b * (ptrdiff_t)DTYPE_BYTES(call->spec[2]),
        call->buffer[2] + (size_t)batch * p->m * p->n * DTYPE_BYTES(call->spec[3]),
    };
}

static void pack_strided_b(const void *s, uint32_t line, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    pack_strided(s, line, count, first, depth, to, TILE_N);
}

static inline void matmul_floats(const struct MatmulPush *p, Operands o, uint32_t dtype_a, uint32_t dtype_b, uint32_t dtype_out) {
    Strided a = {o.a, p->a_strides[0], p->a_strides[1], dtype_a}, b = {o.b, p->b_strides[1], p->b_strides[0], dtype_b};
    gemm(p->m, p->n, p->k, pack_strided_a, &a, pack_strided_b, &b, o.out, dtype_out);
}

static inline void matmul_integers(const struct MatmulPush *p, Operands o, uint32_t dtype_a, uint32_t dtype_b, uint32_t dtype_out) {
    ptrdiff_t a_bytes = DTYPE_BYTES(dtype_a), b_bytes = DTYPE_BYTES(dtype_b);
    for (uint32_t i = 0; i < p->m; i++) {
        for (uint32_t j = 0; j < p->n; j++) {
            const uint8_t *a = o.a + (ptrdiff_t)i * p->a_strides[0] * a_bytes;
            const uint8_t *b = o.b + (ptrdiff_t)j * p->b_strides[1] * b_bytes;
            uint32_t sum = 0;
            for (uint32_t k = 0; k < p->k; k++, a += p->a_strides[1] * a_bytes, b += p->b_strides[0] * b_bytes) {
                sum += load_bits(a, 0, dtype_a) * load_bits(b, 0, dtype_b);
            }
            store_bits(o.out, (size_t)i * p->n + j, dtype_out, sum);
        }
    }
}

#endif
