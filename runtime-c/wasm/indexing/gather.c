// gather: out[outer][k][inner] = in[outer][index(k)][inner]; rows of `inner` elements are copied whole unless ALONG. A chunk is some
// rows, or elements if those are taken one by one.

#include "indexing/indices.h"

enum { RUN = 256 };

// The places that n indices from `first` on name.
static void places_of(uint32_t *restrict to, const uint8_t *indices, size_t first, uint32_t n, uint32_t dtype, uint32_t axis) {
#define PLACES(d) \
    for (uint32_t i = 0; i < n; i++) to[i] = axis_index(indices, first + i, d, axis)
    switch (dtype) { // the compiler makes vectors of the common ones
        case DTYPE_I32: PLACES(DTYPE_I32); break;
        case DTYPE_U32: PLACES(DTYPE_U32); break;
        default: PLACES(dtype); break;
    }
}

// to[i] = from[places[i] * inner + i * step]
#define TAKE(Type) \
    for (uint32_t i = 0; i < n; i++) ((Type *)to)[i] = ((const Type *)from)[(size_t)places[i] * inner + i * step]
static void take(uint8_t *to, const uint8_t *from, const uint32_t *places, uint32_t n, size_t inner, size_t step, uint32_t bytes) {
    if (bytes == 4 && inner == 1) {
        inner = 1, step = 0;
        TAKE(uint32_t);
    } else if (bytes == 8) TAKE(uint64_t);
    else if (bytes == 4) TAKE(uint32_t);
    else if (bytes == 2) TAKE(uint16_t);
    else TAKE(uint8_t);
}

// Elements are taken one by one along the axis or where rows have one element: no memcpy for each.
static bool by_elements(const Call *call) {
    PUSH(GatherPush);
    return call->spec[3] != 0 || p->inner == 1;
}

static uint32_t items(const Call *call) {
    PUSH(GatherPush);
    return p->outer * p->n * (by_elements(call) ? p->inner : 1);
}

static uint32_t grain(const Call *call) {
    PUSH(GatherPush);
    return chunk_grain(items(call), by_elements(call) ? 4 : p->inner, 1);
}

uint32_t chunks_gather(const Call *call) { return chunk_count(items(call), grain(call)); }

// Elements first..end-1. The elements of a line are contiguous in the input. A line of ALONG has the inner elements of
// one index, if there are any; any other line has all elements of an outer index.
static void gather_elements(const Call *call, uint32_t first, uint32_t end) {
    PUSH(GatherPush);
    const uint32_t bytes = call->spec[1], dtype = call->spec[2], line = p->inner == 1 ? p->n : p->inner;
    const bool along = call->spec[3] != 0;
    for (uint32_t i = first, n; i < end; i += n) {
        const uint32_t at = i % line, left = line - at < end - i ? line - at : end - i;
        n = left < RUN ? left : RUN;
        uint32_t places[RUN];
        places_of(places, call->buffer[1], along ? i : at, n, dtype, p->axis);
        const size_t outer = i / ((size_t)p->n * p->inner), from = outer * p->axis * p->inner + (p->inner == 1 ? 0 : at);
        take(call->buffer[2] + (size_t)i * bytes, call->buffer[0] + from * bytes, places, n, p->inner, p->inner == 1 ? 0 : 1, bytes);
    }
}

void k_gather(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(GatherPush);
    const uint32_t first = chunk * grain(call), end = chunk_end(last, grain(call), items(call));
    if (by_elements(call)) {
        gather_elements(call, first, end);
        return;
    }
    const size_t row = (size_t)p->inner * call->spec[1];
    for (uint32_t r = first; r < end; r++) {
        const size_t index = axis_index(call->buffer[1], r % p->n, call->spec[2], p->axis);
        __builtin_memcpy(call->buffer[2] + r * row, call->buffer[0] + (r / p->n * (size_t)p->axis + index) * row, row);
    }
}
