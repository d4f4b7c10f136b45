// Kernels of packed matrices (packed.h): packing in place, rows of the plain form, and the two products.

#include "quantized/packed_kernels.h"

#include "indexing/indices.h"
#include "quantized/packed_matmul.h"
#include "quantized/packed_matvec.h"
#include "quantized/packed_words.h"

enum {
    PART_CODES = 0,      // and 1 scales, 2 biases
    MIN_CHUNK = 1 << 16, // multiplications that are worth another thread: about 2 us
    MAX_CHUNKS = 64,     // of one matrix-vector product, unless they grow longer than this:
    LONGEST_CHUNK = 1 << 20,
    BLOCK_ROWS = 128, // rows of x that stay in the cache
};

bool packed_quads;

// spec: THREADS, BITS, GROUP, DTYPE_SCALES, …
static Packed packed_of(const Call *call, uint32_t buffer) {
    PUSH(PackedPush);
    return (Packed){call->buffer[buffer], p->rows, p->columns, call->spec[1], call->spec[2], call->spec[3]};
}

// ---- packing --------------------------------------------------------------------------------------------------------

// Eight columns of 4 bits a lane: low half of the word to the low nibbles of the bytes, high half to the high nibbles.
INLINE u4 spread_nibbles(u4 words) {
    u4 low = words & 0xffffu, high = words >> 16;
    low = (low | low << 8) & 0x00ff00ffu, low = (low | low << 4) & 0x0f0f0f0fu;
    high = (high | high << 8) & 0x00ff00ffu, high = (high | high << 4) & 0x0f0f0f0fu;
    return low | high << 4;
}

// The inverse.
INLINE uint32_t gather_nibbles(uint32_t bytes) {
    uint32_t low = bytes & 0x0f0f0f0fu, high = bytes >> 4 & 0x0f0f0f0fu;
    low = (low | low >> 4) & 0x00ff00ffu, low = (low | low >> 8) & 0xffffu;
    high = (high | high >> 4) & 0x00ff00ffu, high = (high | high >> 8) & 0xffffu;
    return low | high << 16;
}

// Sixteen bytes of each of four rows become a vector of four blocks, which lie a tile's row of blocks apart.
INLINE void pack_four(const uint8_t *rows, uint32_t row_bytes, bool nibbles, uint8_t *to) {
    f4 v[4];
    for (uint32_t r = 0; r < 4; r++) {
        u4 words = u4_load(rows + (size_t)r * row_bytes);
        v[r] = (f4)(nibbles ? spread_nibbles(words) : words);
    }
    f4_transpose(&v[0], &v[1], &v[2], &v[3]);
    for (uint32_t i = 0; i < 4; i++) f4_store((float *)(to + 4 * TILE * i), v[i]);
}

// The scale or bias of each row of a tile; a copy of so few bytes is a slow instruction, hence the typed loops.
INLINE void pack_factors(const uint8_t *plane, size_t first, uint32_t groups, uint32_t bytes, uint8_t *to) {
    for (uint32_t r = 0; r < TILE; r++) {
        if (bytes == 2) ((uint16_t *)to)[r] = ((const uint16_t *)plane)[first + (size_t)r * groups];
        else ((uint32_t *)to)[r] = ((const uint32_t *)plane)[first + (size_t)r * groups];
    }
}

// In place: the plain codes are in the last bytes of the matrix. So the writes to tile t end before the reads of tile t
// + 1.
void k_pack_quantized(const Call *call) {
    Packed w = packed_of(call, 0);
    uint8_t tile[TILE * MAX_COLUMNS], *to = w.data;
    uint32_t groups = w.columns / w.group, bytes = DTYPE_BYTES(w.dtype), row_bytes = w.columns / 8 * w.bits;
    uint32_t group_bytes = w.group / 8 * w.bits, tiles = w.rows / TILE;
    const uint8_t *codes = to + tiles * (packed_tile_bytes(&w) - (size_t)TILE * row_bytes);
    for (uint32_t t = 0; t < tiles; t++, codes += (size_t)TILE * row_bytes) {
        __builtin_memcpy(tile, codes, (size_t)TILE * row_bytes);
        for (uint32_t g = 0; g < groups; g++) {
            size_t factor = (size_t)t * TILE * groups + g;
            pack_factors(call->buffer[1], factor, groups, bytes, to);
            pack_factors(call->buffer[2], factor, groups, bytes, to + TILE * bytes);
            to += packed_head_bytes(w.dtype);
            for (uint32_t i = g * group_bytes; i < (g + 1) * group_bytes; i += 16, to += 16 * TILE) {
                for (uint32_t r = 0; r < TILE; r += 4) { pack_four(tile + (size_t)r * row_bytes + i, row_bytes, w.bits == 4, to + 4 * r); }
            }
        }
    }
}

// Rows of the codes, scales or biases as they were before packing: those that indices name, or the first `count`.
void k_packed_rows(const Call *call) {
    PUSH(PackedPush);
    Packed w = packed_of(call, 0);
    uint32_t part = call->spec[4], groups = w.columns / w.group, bytes = DTYPE_BYTES(w.dtype);
    uint32_t words = w.group / 32 * w.bits, group_bytes = packed_head_bytes(w.dtype) + packed_code_bytes(w.group, w.bits);
    uint8_t *out = call->buffer[2];
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t row = call->buffer[1] ? axis_index(call->buffer[1], i, call->spec[5], w.rows) : i, r = row % TILE;
        const uint8_t *at = w.data + row / TILE * packed_tile_bytes(&w);
        for (uint32_t g = 0; g < groups; g++, at += group_bytes) {
            if (part == PART_CODES) {
                const uint32_t *codes = (const uint32_t *)(at + packed_head_bytes(w.dtype)) + r;
                for (uint32_t j = 0; j < words; j++, out += 4) {
                    *(uint32_t *)out = w.bits == 4 ? gather_nibbles(codes[j * TILE]) : codes[j * TILE];
                }
            } else {
                const uint8_t *from = at + ((part - 1) * TILE + r) * bytes;
                if (bytes == 2) *(uint16_t *)out = *(const uint16_t *)from;
                else *(uint32_t *)out = *(const uint32_t *)from;
                out += bytes;
            }
        }
    }
}

// ---- activations ----------------------------------------------------------------------------------------------------

static Activations activations_of(uint8_t *codes, uint8_t *factors, uint32_t rows, uint32_t groups) {
    size_t padded = rows == 1 ? 1 : (rows + 3) & ~3u;
    return (Activations){(int8_t *)codes, (float *)factors, (float *)factors + padded * groups};
}

// Whether rows of so many bytes a value are multiplied as words.
static bool has_words(uint32_t bytes) { return bytes == 2 && !packed_quads; }

// Four rows a chunk.
uint32_t chunks_quantize_activations(const Call *call) {
    PUSH(PackedPush);
    return (p->count + 3) / 4;
}

void k_quantize_activations(const Call *call, uint32_t first, uint32_t last) {
    PUSH(PackedPush);
    uint32_t k = p->columns, group = call->spec[1], dtype = call->spec[2], bytes = call->spec[3];
    float x[MAX_COLUMNS];
    Activations all = activations_of(call->buffer[1], call->buffer[2], p->count, k / group);
    if (p->count == 1) {
        load_run(x, call->buffer[0], 0, k, dtype);
        if (bytes == 2) quantize_row(&all, x, k, group, true);
        else quantize_row(&all, x, k, group, false);
        return;
    }
    for (uint32_t block = first; block < last; block++) {
        size_t at = (size_t)block * 4 * k, factor = at / group;
        Activations to = {all.q + at * bytes, all.steps + factor, all.sums + factor};
        if (has_words(bytes)) {
            uint32_t rows = min_u32(4, p->count - block * 4);
            for (uint32_t r = 0; r < rows; r++) {
                load_run(x, call->buffer[0], at + (size_t)r * k, k, dtype);
                quantize_words_row(&to, r, rows, x, k, group);
            }
            continue;
        }
        for (uint32_t r = 0; r < 4; r++) {
            uint32_t row = block * 4 + r;
            if (row < p->count) load_run(x, call->buffer[0], (size_t)row * k, k, dtype);
            else __builtin_memset(x, 0, k * sizeof(float));
            if (bytes == 2) quantize_block_row(&to, r, x, k, group, true);
            else quantize_block_row(&to, r, x, k, group, false);
        }
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// Tiles of w that one chunk of a matrix-vector product takes.
static uint32_t matvec_grain(const struct PackedPush *p) {
    uint32_t tiles = p->rows / TILE, work = TILE * p->columns, least = MIN_CHUNK / work;
    uint32_t grain = (tiles + MAX_CHUNKS - 1) / MAX_CHUNKS, most = LONGEST_CHUNK / work;
    grain = grain > most ? most : grain;
    grain = grain < least ? least : grain;
    return grain ? grain : 1;
}

uint32_t chunks_packed_matvec(const Call *call) {
    PUSH(PackedPush);
    uint32_t grain = matvec_grain(p);
    return (p->rows / TILE + grain - 1) / grain;
}

void k_packed_matvec(const Call *call, uint32_t first, uint32_t last) {
    PUSH(PackedPush);
    Packed w = packed_of(call, 2);
    Activations x = activations_of(call->buffer[0], call->buffer[1], 1, w.columns / w.group);
    uint32_t grain = matvec_grain(p), precise = call->spec[4] == 2, dtype_out = call->spec[5];
    first *= grain, last = min_u32(last * grain, p->rows / TILE);
#define FORM(BITS, PRECISE, QUADS) \
    if (w.bits == BITS && precise == PRECISE && packed_quads == QUADS) { \
        if (w.dtype == DTYPE_BF16) packed_matvec(&w, &x, first, last, call->buffer[3], dtype_out, BITS, DTYPE_BF16, PRECISE, QUADS); \
        else packed_matvec(&w, &x, first, last, call->buffer[3], dtype_out, BITS, w.dtype, PRECISE, QUADS); \
    }
#define CASE(BITS, PRECISE) FORM(BITS, PRECISE, false) FORM(BITS, PRECISE, true)
    CASE(4, 0) CASE(4, 1) CASE(8, 0) CASE(8, 1)
#undef CASE
#undef FORM
}

// A chunk is a tile times a block of rows.
uint32_t chunks_packed_matmul(const Call *call) {
    PUSH(PackedPush);
    return p->rows / TILE * ((p->count + BLOCK_ROWS - 1) / BLOCK_ROWS);
}

void k_packed_matmul(const Call *call, uint32_t first, uint32_t last) {
    PUSH(PackedPush);
    Packed w = packed_of(call, 2);
    Activations x = activations_of(call->buffer[0], call->buffer[1], p->count, w.columns / w.group);
    uint32_t tiles = p->rows / TILE, precise = call->spec[4] == 2, dtype_out = call->spec[5];
    for (uint32_t chunk = first; chunk < last; chunk++) {
        uint32_t row = chunk / tiles * BLOCK_ROWS, end = min_u32(row + BLOCK_ROWS, p->count), t = chunk % tiles;
        if (has_words(call->spec[4])) {
            if (w.bits == 4) packed_words(&w, &x, t, row, end, call->buffer[3], dtype_out, 4);
            else packed_words(&w, &x, t, row, end, call->buffer[3], dtype_out, 8);
            continue;
        }
#define FORM(BITS, PRECISE, QUADS) \
    if (w.bits == BITS && precise == PRECISE && packed_quads == QUADS) \
        packed_matmul(&w, &x, t, row, end, call->buffer[3], dtype_out, BITS, PRECISE, QUADS);
        FORM(4, 0, false) FORM(4, 0, true) FORM(4, 1, true) FORM(8, 0, false) FORM(8, 0, true) FORM(8, 1, true)
#undef FORM
    }
}
