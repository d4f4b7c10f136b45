// Walking strided operands in runs along the last dimension.

#ifndef VKMX_WASM_STRIDED_H
#define VKMX_WASM_STRIDED_H
#include "kernel.h"

// A place in a shape: the index along each dimension and the element offset that strides give it.
typedef struct Place {
    uint32_t at[5];
    ptrdiff_t offset;
} Place;

// Number of dimensions up to the last one that is not 1: runs go along that one.
static inline int used_dims(const uint32_t *shape, int dims) {
    while (dims > 1 && shape[dims - 1] == 1) dims--;
    return dims;
}

// The place of flat index `flat`.
static inline Place place_of(uint32_t flat, int dims, const uint32_t *shape, const int32_t *strides) {
    Place p = {{0}, 0};
    for (int d = dims - 1; d >= 0; d--) {
        p.at[d] = flat % shape[d];
        flat /= shape[d];
        p.offset += (ptrdiff_t)p.at[d] * strides[d];
    }
    return p;
}

// Moves on by n elements, which must not reach past the end of the last dimension.
static inline void place_advance(Place *p, uint32_t n, int dims, const uint32_t *shape, const int32_t *strides) {
    int d = dims - 1;
    p->at[d] += n;
    p->offset += (ptrdiff_t)n * strides[d];
    for (; d > 0 && p->at[d] == shape[d]; d--) {
        p->offset += strides[d - 1] - (ptrdiff_t)shape[d] * strides[d];
        p->at[d] = 0;
        p->at[d - 1]++;
    }
}

#endif
