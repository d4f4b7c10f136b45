// Dense batched matrix product of strided operands: float dtypes through the packed core, integers exactly modulo 2^32.

#include "matmul.h"

void k_matmul(const Call *call) {
    PUSH(MatmulPush);
    uint32_t dtype_a = call->spec[1], dtype_b = call->spec[2], dtype_out = call->spec[3];
    for (uint32_t batch = 0; batch < p->batch; batch++) {
        Operands o = matmul_operands(call, batch);
        if (DTYPE_IS_FLOAT(dtype_out)) matmul_floats(p, o, dtype_a, dtype_b, dtype_out);
        else matmul_integers(p, o, dtype_a, dtype_b, dtype_out);
    }
}
