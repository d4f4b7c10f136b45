// Where keys and values are in an array of any strides, for all kernels that read them; shaders/include/kv_address.glsl is the same of
// shaders.

#ifndef VKMX_WASM_KV_ADDRESS_H
#define VKMX_WASM_KV_ADDRESS_H
#include "simd.h"

// The first feature of a position; strides are elements of sequences, heads and positions.
INLINE const uint8_t *kv_address(const uint8_t *data, const int32_t *strides, uint32_t sequence, uint32_t head, uint32_t position,
                                 uint32_t dtype) {
    ptrdiff_t at = (ptrdiff_t)sequence * strides[0] + (ptrdiff_t)head * strides[1] + (ptrdiff_t)position * strides[2];
    return data + at * (ptrdiff_t)DTYPE_BYTES(dtype);
}

// Pages of a sequence, of `size` positions each; none where positions follow each other.
typedef struct Pages {
    const int32_t *pages;
    uint32_t size;
} Pages;

// The same where the first stride is from page to page.
INLINE const uint8_t *kv_page_address(const uint8_t *data, const int32_t *strides, Pages pages, uint32_t head, uint32_t position,
                                      uint32_t dtype) {
    return kv_address(data, strides, (uint32_t)pages.pages[position / pages.size], head, position % pages.size, dtype);
}

#endif
