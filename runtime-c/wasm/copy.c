// copy: strided to strided over up to five dimensions, in runs along the last one that is not 1; see shaders/ops/copy.comp.

#include "kernel.h"
#include "strided.h"

#define DIMS 5

static ptrdiff_t dynamic_shift(const struct CopyPush *p, const uint8_t *start) {
    ptrdiff_t shift = 0;
    for (uint32_t d = 0; d < p->starts; d++) {
        int32_t s = ((const int32_t *)start)[d], limit = (int32_t)p->start_limits[d];
        shift += (ptrdiff_t)(s < 0 ? 0 : s > limit ? limit : s) * p->start_strides[d];
    }
    return shift;
}

typedef struct Wide {
    uint64_t halves[2];
} Wide;

#define RUN(Type) \
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) ((Type *)to)[i * to_stride] = ((const Type *)from)[i * from_stride];

static void copy_run(uint8_t *to, ptrdiff_t to_stride, const uint8_t *from, ptrdiff_t from_stride, uint32_t n, uint32_t bytes) {
    if (to_stride == 1 && from_stride == 1 && (size_t)n * bytes >= 64) __builtin_memcpy(to, from, (size_t)n * bytes);
    else if (bytes == 16) RUN(Wide)
    else if (bytes == 8) RUN(uint64_t)
    else if (bytes == 4) RUN(uint32_t)
    else if (bytes == 2) RUN(uint16_t)
    else RUN(uint8_t)
}

// Rows along the last dimension of a chunk.
static uint32_t grain(const struct CopyPush *p, uint32_t cols) { return chunk_grain(p->count / cols, cols, 1); }

static uint32_t columns(const struct CopyPush *p) {
    uint32_t cols = p->shape[used_dims(p->shape, DIMS) - 1];
    return cols ? cols : 1;
}

uint32_t chunks_copy(const Call *call) {
    PUSH(CopyPush);
    uint32_t cols = columns(p);
    return chunk_count(p->count / cols, grain(p, cols));
}

void k_copy(const Call *call, uint32_t chunk, uint32_t last_chunk) {
    PUSH(CopyPush);
    const ptrdiff_t bytes = (ptrdiff_t)call->spec[1];
    const uint32_t dynamic = call->spec[2];
    const uint8_t *in = call->buffer[0];
    uint8_t *out = call->buffer[2];
    if (dynamic == 1) out += dynamic_shift(p, call->buffer[1]) * bytes;
    if (dynamic == 2) in += dynamic_shift(p, call->buffer[1]) * bytes;

    const int dims = used_dims(p->shape, DIMS), last = dims - 1;
    const uint32_t cols = columns(p), begin = chunk * grain(p, cols) * cols;
    const uint32_t end = chunk_end(last_chunk, grain(p, cols), p->count / cols) * cols;
    Place from = place_of(begin, dims, p->shape, p->in_strides), to = place_of(begin, dims, p->shape, p->out_strides);
    for (uint32_t done = begin; done < end; done += cols) {
        copy_run(out + to.offset * bytes, p->out_strides[last], in + from.offset * bytes, p->in_strides[last], cols, (uint32_t)bytes);
        place_advance(&from, cols, dims, p->shape, p->in_strides);
        place_advance(&to, cols, dims, p->shape, p->out_strides);
    }
}
