// Dense batched matrix product of strided operands: float dtypes through the packed core, integers exactly modulo 2^32. A chunk is a block
// of a product.

#include "matmul/matmul.h"

uint32_t chunks_matmul(const Call *call) {
    PUSH(MatmulPush);
    return p->batch * matmul_blocks(call);
}

void k_matmul(const Call *call, uint32_t first, uint32_t last) { matmul_run(call, first, last); }
