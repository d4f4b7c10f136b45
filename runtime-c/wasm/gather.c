// gather: out[outer][k][inner] = in[outer][index(k)][inner]; rows of `inner` elements are copied whole unless ALONG.

#include "indices.h"

#define ALONG_ROWS(Type) \
    for (uint32_t o = 0, i = 0; o < p->outer; o++) \
        for (uint32_t k = 0; k < p->n; k++) \
            for (uint32_t j = 0; j < p->inner; j++, i++) { \
                size_t index = axis_index(indices, i, dtype, p->axis); \
                ((Type *)out)[i] = ((const Type *)in)[(o * (size_t)p->axis + index) * p->inner + j]; \
            }

void k_gather(const Call *call) {
    PUSH(GatherPush);
    const uint32_t bytes = call->spec[1], dtype = call->spec[2];
    bool along = call->spec[3] != 0;
    const uint8_t *in = call->buffer[0], *indices = call->buffer[1];
    uint8_t *out = call->buffer[2];
    if (along || (p->inner == 1 && p->outer == 1)) { // with a single row both are the same; no memcpy an element here
        if (bytes == 8) ALONG_ROWS(uint64_t)
        else if (bytes == 4) ALONG_ROWS(uint32_t)
        else if (bytes == 2) ALONG_ROWS(uint16_t)
        else ALONG_ROWS(uint8_t)
        return;
    }
    const size_t row = (size_t)p->inner * bytes;
    for (uint32_t o = 0; o < p->outer; o++)
        for (uint32_t k = 0; k < p->n; k++, out += row) {
            size_t index = axis_index(indices, k, dtype, p->axis);
            __builtin_memcpy(out, in + (o * (size_t)p->axis + index) * row, row);
        }
}
