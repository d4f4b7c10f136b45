// Quantized product of many rows, x @ w.T or x @ w, and of few where activations are not to be rounded.

#include "quantized_product.h"

void k_quantized_matmul(const Call *call) {
    if (call->spec[6] != 0) quantized_floats(call);
    else quantized_product(call, false);
}
