// copy: strided to strided over up to five dimensions, in runs along the last one that is not 1; see shaders/copy.comp.

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

#define RUN(Type)                                                                                                     \
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) ((Type *)to)[i * to_stride] = ((const Type *)from)[i * from_stride];

static void copy_run(uint8_t *to, ptrdiff_t to_stride, const uint8_t *from, ptrdiff_t from_stride, uint32_t n,
                     uint32_t bytes) {
    if (to_stride == 1 && from_stride == 1 && (size_t)n * bytes >= 64) __builtin_memcpy(to, from, (size_t)n * bytes);
    else if (bytes == 4) RUN(uint32_t)
    else if (bytes == 2) RUN(uint16_t)
    else RUN(uint8_t)
}

void k_copy(const Call *call) {
    PUSH(CopyPush);
    const ptrdiff_t bytes = (ptrdiff_t)call->spec[1];
    const uint32_t dynamic = call->spec[2];
    if (p->count == 0) return;
    const uint8_t *in = call->buffer[0];
    uint8_t *out = call->buffer[2];
    if (dynamic == 1) out += dynamic_shift(p, call->buffer[1]) * bytes;
    if (dynamic == 2) in += dynamic_shift(p, call->buffer[1]) * bytes;

    const int dims = used_dims(p->shape, DIMS), last = dims - 1;
    const uint32_t cols = p->shape[last];
    Place from = {{0}, 0}, to = {{0}, 0};
    for (uint32_t done = 0; done < p->count; done += cols) {
        copy_run(out + to.offset * bytes, p->out_strides[last], in + from.offset * bytes, p->in_strides[last], cols,
                 (uint32_t)bytes);
        place_advance(&from, cols, dims, p->shape, p->in_strides);
        place_advance(&to, cols, dims, p->shape, p->out_strides);
    }
}
