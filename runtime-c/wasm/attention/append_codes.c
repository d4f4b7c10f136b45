// append_codes: positions of sequences into the pages of a pool, in codes; see shaders/ops/attention/append_codes.comp. A chunk is
// some positions of heads.

#include "kernel.h"
#include "attention/kv_codes.h"

static uint32_t items(const Call *call) {
    PUSH(AppendPagesPush);
    return p->batch * p->heads * p->count;
}

static uint32_t grain(const Call *call) {
    PUSH(AppendPagesPush);
    return chunk_grain(items(call), p->units, 1);
}

uint32_t chunks_append_codes(const Call *call) { return chunk_count(items(call), grain(call)); }

void k_append_codes(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(AppendPagesPush);
    const uint32_t dtype = call->spec[1], size = call->spec[2], blocks = p->units / p->block;
    const int32_t *table = (const int32_t *)call->buffer[1], *start = (const int32_t *)call->buffer[2];
    const uint32_t end = chunk_end(last, grain(call), items(call));
    for (uint32_t i = chunk * grain(call); i < end; i++) {
        const uint32_t t = i % p->count, head = i / p->count % p->heads, batch = i / p->count / p->heads;
        const int64_t position = (int64_t)start[batch] + t;
        if (position < 0 || position / size >= p->columns) continue;
        const int32_t named = table[batch * p->columns + (uint32_t)(position / size)];
        const uint32_t page = named < 0 ? 0 : (uint32_t)named < p->pages ? (uint32_t)named : p->pages - 1;
        const ptrdiff_t from = (ptrdiff_t)batch * p->strides[0] + (ptrdiff_t)head * p->strides[1] + (ptrdiff_t)t * p->strides[2];
        const uint8_t *row = call->buffer[0] + from * (ptrdiff_t)DTYPE_BYTES(dtype);
        for (uint32_t unit = 0; unit < p->units; unit++) {
            const size_t line = ((size_t)page * p->heads + head) * blocks + unit / p->block;
            const size_t to = (line * size + (size_t)(position % size)) * p->block + unit % p->block;
            ((uint32_t *)call->buffer[3])[to] = kv_encode(f4_load_as(row, (size_t)unit * 4, dtype));
        }
    }
}
