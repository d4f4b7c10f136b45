// Products of matrices that indices choose from two stacks, or of ranges of the depth. See shaders/ops/matmul/matmul.comp.

#include "indexing/indices.h"
#include "matmul/matmul.h"

static uint32_t blocks_of(const Call *call) {
    PUSH(MatmulPush);
    if (call->spec[3] == DTYPE_F64) return double_blocks(p->m);
    Gemm g = {.m = p->m, .n = p->n};
    return gemm_blocks(&g);
}

uint32_t chunks_gathered_matmul(const Call *call) {
    PUSH(MatmulPush);
    return p->batch * blocks_of(call);
}

void k_gathered_matmul(const Call *call, uint32_t first, uint32_t last) {
    PUSH(MatmulPush);
    const uint8_t *left = call->buffer[3], *right = call->buffer[4], *ranges = call->buffer[5];
    uint32_t blocks = blocks_of(call);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t batch = chunk / blocks, start = 0, depth = p->k;
        ptrdiff_t a = left ? (ptrdiff_t)axis_index(left, batch, DTYPE_U32, p->batch_shape[1]) : 0;
        ptrdiff_t b = right ? (ptrdiff_t)axis_index(right, batch, DTYPE_U32, p->batch_shape[2]) : 0;
        if (ranges) {
            uint32_t end = min_u32(load_bits(ranges, 2 * (size_t)batch + 1, DTYPE_U32), p->k);
            start = min_u32(load_bits(ranges, 2 * (size_t)batch, DTYPE_U32), end);
            depth = end - start;
        }
        ptrdiff_t a_bytes = DTYPE_BYTES(call->spec[1]), b_bytes = DTYPE_BYTES(call->spec[2]);
        Operands o = {
            call->buffer[0] + (a * p->a_batch_strides[0] + (ptrdiff_t)start * p->a_strides[1]) * a_bytes,
            call->buffer[1] + (b * p->b_batch_strides[0] + (ptrdiff_t)start * p->b_strides[0]) * b_bytes,
            call->buffer[2] + (size_t)batch * p->m * p->n * DTYPE_BYTES(call->spec[3]),
        };
        if (call->spec[3] == DTYPE_F64) {
            double_matmul(call, o, depth, chunk % blocks);
            continue;
        }
        StridedGemm s;
        strided_gemm(&s, call, o, depth);
        gemm_block(&s.g, chunk % blocks);
    }
}
