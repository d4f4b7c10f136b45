// gather_codes: positions of sequences out of the pages of a pool that has codes; see shaders/ops/attention/gather_codes.comp. A chunk is some
// positions of heads.

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

uint32_t chunks_gather_codes(const Call *call) { return chunk_count(items(call), grain(call)); }

void k_gather_codes(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(AppendPagesPush);
    const uint32_t dtype = call->spec[1], size = call->spec[2], blocks = p->units / p->block;
    const int32_t *table = (const int32_t *)call->buffer[1];
    const uint32_t end = chunk_end(last, grain(call), items(call));
    for (uint32_t i = chunk * grain(call); i < end; i++) {
        const uint32_t position = i % p->count, head = i / p->count % p->heads, batch = i / p->count / p->heads;
        const int32_t named = table[batch * p->columns + position / size];
        const uint32_t page = named < 0 ? 0 : (uint32_t)named < p->pages ? (uint32_t)named : p->pages - 1;
        const ptrdiff_t to = (ptrdiff_t)batch * p->strides[0] + (ptrdiff_t)head * p->strides[1] + (ptrdiff_t)position * p->strides[2];
        uint8_t *row = call->buffer[2] + to * (ptrdiff_t)DTYPE_BYTES(dtype);
        for (uint32_t unit = 0; unit < p->units; unit++) {
            const size_t line = ((size_t)page * p->heads + head) * blocks + unit / p->block;
            const size_t from = (line * size + position % size) * p->block + unit % p->block;
            store_four(row, (size_t)unit * 4, dtype, kv_decode(((const uint32_t *)call->buffer[0])[from]));
        }
    }
}
