// The common part of matmul, matvec and gathered_matmul: the operands of a batch row, and the products of both kinds of dtypes.

#ifndef VKMX_WASM_MATMUL_H
#define VKMX_WASM_MATMUL_H
#include "matmul/double_matmul.h"
#include "matmul/gemm.h"

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

// A product of floats with what its packing reads.
typedef struct StridedGemm {
    Strided a, b;
    Gemm g;
} StridedGemm;

INLINE void strided_gemm(StridedGemm *s, const Call *call, Operands o, uint32_t k) {
    PUSH(MatmulPush);
    s->a = (Strided){o.a, p->a_strides[0], p->a_strides[1], call->spec[1]};
    s->b = (Strided){o.b, p->b_strides[1], p->b_strides[0], call->spec[2]};
    s->g = (Gemm){p->m, p->n, k, pack_strided_a, pack_strided_b, &s->a, &s->b, o.out, p->n, call->spec[3]};
}

INLINE void double_matmul(const Call *call, Operands o, uint32_t k, uint32_t block) {
    PUSH(MatmulPush);
    const DoubleLines a = {o.a, p->a_strides[0], p->a_strides[1], call->spec[1]};
    const DoubleLines b = {o.b, p->b_strides[1], p->b_strides[0], call->spec[2]};
    double_matmul_block(&a, &b, p->m, p->n, k, (double *)o.out, block);
}

// Row i of a product of integers.
static inline void matmul_integers_row(const Call *call, Operands o, uint32_t i) {
    PUSH(MatmulPush);
    uint32_t dtype_a = call->spec[1], dtype_b = call->spec[2], dtype_out = call->spec[3];
    ptrdiff_t a_bytes = DTYPE_BYTES(dtype_a), b_bytes = DTYPE_BYTES(dtype_b);
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

// Products are cut into batch rows and those into blocks, rows if they are of integers.
INLINE uint32_t matmul_blocks(const Call *call) {
    PUSH(MatmulPush);
    if (call->spec[3] == DTYPE_F64) return double_blocks(p->m);
    Gemm g = {.m = p->m, .n = p->n};
    return DTYPE_IS_FLOAT(call->spec[3]) ? gemm_blocks(&g) : p->m;
}

INLINE void matmul_run(const Call *call, uint32_t first, uint32_t last) {
    uint32_t blocks = matmul_blocks(call);
    PUSH(MatmulPush);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        Operands o = matmul_operands(call, chunk / blocks);
        if (DTYPE_IS_FLOAT(call->spec[3])) {
            StridedGemm s;
            strided_gemm(&s, call, o, p->k);
            gemm_block(&s.g, chunk % blocks);
        } else if (call->spec[3] == DTYPE_F64) {
            double_matmul(call, o, p->k, chunk % blocks);
        } else {
            matmul_integers_row(call, o, chunk % blocks);
        }
    }
}

#endif
