// Quantized product of many rows, x @ w.T or x @ w. A few rows are faster one by one than a dequantized panel pays for.

#include "quantized_product.h"

enum { FEW_ROWS = 24 };

void k_quantized_matvec(const Call *call); // its spec constants begin alike

void k_quantized_matmul(const Call *call) {
    PUSH(QuantizedMatmulPush);
    bool transpose = call->spec[6] != 0;
    if (transpose && p->m <= FEW_ROWS) k_quantized_matvec(call);
    else quantized_product(call, transpose);
}
