// Kernel radix_sort: rows in ascending order, stable, NaN last; WASM only.
//
// Least significant digit first on keys of as many bits as an element has that compare as the values do. A pair of key
// and payload (the element's bits, or its index) is one word of 64 bits. The first pass reads the input and the last one
// writes the output; digits that all elements of a row share are passed over. A row is one thread's, whatever their number.

#include "../../../shaders/include/combine.h"
#include "simd.h"

enum {
    FEW = 24,      // elements that insertion sorts faster
    SHORT = 4096,  // up to here digits of 8 bits: fewer counters to clear
    WIDEST = 2048, // counters of a digit
    PASSES = 4,
};

INLINE uint32_t raw_at(const uint8_t *a, size_t i, uint32_t dtype) {
    switch (DTYPE_BYTES(dtype)) {
        case 4: return ((const uint32_t *)a)[i];
        case 2: return ((const uint16_t *)a)[i];
        default: return a[i];
    }
}

INLINE uint64_t pair_at(const uint8_t *in, size_t i, uint32_t dtype, bool indices) {
    uint32_t raw = raw_at(in, i, dtype);
    return (uint64_t)raw_key(raw, dtype) << 32 | (indices ? (uint32_t)i : raw);
}

INLINE void put(uint8_t *out, size_t i, uint32_t dtype, bool indices, uint32_t payload) {
    uint32_t bytes = indices ? 4 : DTYPE_BYTES(dtype);
    if (bytes == 4) ((uint32_t *)out)[i] = payload;
    else if (bytes == 2) ((uint16_t *)out)[i] = (uint16_t)payload;
    else out[i] = (uint8_t)payload;
}

INLINE void sort_few(const uint8_t *in, uint8_t *out, uint32_t n, uint32_t dtype, bool indices) {
    uint64_t pairs[FEW];
    for (uint32_t i = 0; i < n; i++) {
        uint64_t pair = pair_at(in, i, dtype, indices);
        uint32_t at = i;
        for (; at > 0 && pairs[at - 1] >> 32 > pair >> 32; at--) pairs[at] = pairs[at - 1];
        pairs[at] = pair;
    }
    for (uint32_t i = 0; i < n; i++) put(out, i, dtype, indices, (uint32_t)pairs[i]);
}

// One pass: pairs of `from`, of the input if it is NULL, go to `to`, their payloads to `out` if that is NULL.
INLINE void move(const uint64_t *from, uint64_t *to, const uint8_t *in, uint8_t *out, uint32_t n, uint32_t shift, uint32_t mask,
                 uint32_t *starts, uint32_t dtype, bool indices) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t pair = from ? from[i] : pair_at(in, i, dtype, indices);
        uint32_t at = starts[(uint32_t)(pair >> 32) >> shift & mask]++;
        if (to) to[at] = pair;
        else put(out, at, dtype, indices, (uint32_t)pair);
    }
}

INLINE void sort_row(const uint8_t *in, uint64_t *work, uint8_t *out, uint32_t n, uint32_t dtype, bool indices) {
    if (n <= FEW) return sort_few(in, out, n, dtype, indices);
    uint32_t counts[PASSES * WIDEST];
    uint32_t key_bits = 8 * DTYPE_BYTES(dtype), bits = key_bits < 32 || n <= SHORT ? 8 : 11, mask = (1u << bits) - 1;
    uint32_t passes = (key_bits + bits - 1) / bits, shifts[PASSES], kept = 0;
    __builtin_memset(counts, 0, (size_t)(passes << bits) * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = raw_key(raw_at(in, i, dtype), dtype);
        for (uint32_t d = 0; d < passes; d++) counts[(d << bits) + (key >> d * bits & mask)]++;
    }
    uint32_t first = raw_key(raw_at(in, 0, dtype), dtype);
    for (uint32_t d = 0; d < passes; d++) {
        uint32_t *digit = counts + (d << bits);
        bool shared = digit[first >> d * bits & mask] == n;
        if (!shared || (d + 1 == passes && kept == 0)) shifts[kept++] = d * bits;
        for (uint32_t i = 0, start = 0; i <= mask; i++) {
            uint32_t count = digit[i];
            digit[i] = start;
            start += count;
        }
    }
    const uint64_t *from = NULL;
    for (uint32_t pass = 0; pass < kept; pass++) {
        uint64_t *to = pass + 1 == kept ? NULL : work + (pass & 1 ? n : 0);
        uint32_t *starts = counts + ((shifts[pass] / bits) << bits);
        if (!from && !to) move(NULL, NULL, in, out, n, shifts[pass], mask, starts, dtype, indices);
        else if (!from) move(NULL, to, in, out, n, shifts[pass], mask, starts, dtype, indices);
        else if (to) move(from, to, in, out, n, shifts[pass], mask, starts, dtype, indices);
        else move(from, NULL, in, out, n, shifts[pass], mask, starts, dtype, indices);
        from = to;
    }
}

// ---- elements of 8 bytes --------------------------------------------------------------------------------------------

typedef struct Wide {
    uint64_t key;
    uint32_t index;
} Wide;

INLINE uint64_t wide_key(uint64_t raw, uint32_t dtype) {
    const uint64_t sign = 1ull << 63, infinity = 0x7ffull << 52;
    if (dtype == DTYPE_C64) { // the real part first; a number with a NaN after all others
        uint32_t re = raw_key((uint32_t)raw, DTYPE_F32), im = raw_key((uint32_t)(raw >> 32), DTYPE_F32);
        return re == ~0u || im == ~0u ? ~0ull : (uint64_t)re << 32 | im;
    }
    if (dtype != DTYPE_F64) return dtype == DTYPE_I64 ? raw ^ sign : raw;
    if ((raw & ~sign) > infinity) return ~0ull;
    if (raw == sign) return sign;
    return raw & sign ? ~raw : raw | sign;
}

// The same with digits of 8 bits, from one half of `work` (2 n) to the other; elements are fetched by their index.
static void sort_wide_row(const uint64_t *in, Wide *work, uint8_t *out, uint32_t n, uint32_t dtype, bool indices) {
    uint32_t counts[8][256];
    Wide *from = work, *to = work + n;
    __builtin_memset(counts, 0, sizeof(counts));
    for (uint32_t i = 0; i < n; i++) {
        from[i] = (Wide){wide_key(in[i], dtype), i};
        for (uint32_t d = 0; d < 8; d++) counts[d][from[i].key >> 8 * d & 255]++;
    }
    for (uint32_t d = 0; d < 8; d++) {
        if (counts[d][from[0].key >> 8 * d & 255] == n) continue;
        for (uint32_t i = 0, start = 0; i < 256; i++) {
            uint32_t count = counts[d][i];
            counts[d][i] = start;
            start += count;
        }
        for (uint32_t i = 0; i < n; i++) to[counts[d][from[i].key >> 8 * d & 255]++] = from[i];
        Wide *sorted = to;
        to = from;
        from = sorted;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (indices) ((uint32_t *)out)[i] = from[i].index;
        else ((uint64_t *)out)[i] = in[from[i].index];
    }
}

static void sort_wide_rows(const Call *call, uint32_t row, uint32_t end, uint32_t dtype, bool indices) {
    PUSH(RowsPush);
    size_t n = p->cols;
    for (; row < end; row++) {
        Wide *work = (Wide *)call->buffer[1] + row * 2 * n;
        uint8_t *out = call->buffer[2] + row * n * (indices ? 4 : 8);
        sort_wide_row((const uint64_t *)call->buffer[0] + row * n, work, out, p->cols, dtype, indices);
    }
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

static uint32_t radix_grain(const Call *call) {
    PUSH(RowsPush);
    return chunk_grain(p->rows, p->cols > 4096 ? 65536 : 16 * p->cols, 1);
}

uint32_t chunks_radix_sort(const Call *call) {
    PUSH(RowsPush);
    return chunk_count(p->rows, radix_grain(call));
}

INLINE void sort_rows(const Call *call, uint32_t row, uint32_t end, uint32_t dtype, bool indices) {
    PUSH(RowsPush);
    size_t n = p->cols, bytes = DTYPE_BYTES(dtype), bytes_out = indices ? 4 : bytes;
    for (; row < end; row++) {
        uint64_t *work = (uint64_t *)call->buffer[1] + row * n * (bytes / 2); // pairs between passes: none, n or 2 n
        sort_row(call->buffer[0] + row * n * bytes, work, call->buffer[2] + row * n * bytes_out, p->cols, dtype, indices);
    }
}

#define SORT_ROWS(dtype) (indices ? sort_rows(call, row, end, dtype, true) : sort_rows(call, row, end, dtype, false))

void k_radix_sort(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(RowsPush);
    uint32_t grain = radix_grain(call), row = chunk * grain, end = chunk_end(last, grain, p->rows);
    bool indices = call->spec[2];
    switch (call->spec[1]) {
        case DTYPE_F32: SORT_ROWS(DTYPE_F32); break;
        case DTYPE_I32: SORT_ROWS(DTYPE_I32); break;
        case DTYPE_U32: SORT_ROWS(DTYPE_U32); break;
        case DTYPE_F16: SORT_ROWS(DTYPE_F16); break;
        case DTYPE_BF16: SORT_ROWS(DTYPE_BF16); break;
        case DTYPE_I16: SORT_ROWS(DTYPE_I16); break;
        case DTYPE_U16: SORT_ROWS(DTYPE_U16); break;
        case DTYPE_I8: SORT_ROWS(DTYPE_I8); break;
        case DTYPE_I64:
        case DTYPE_U64:
        case DTYPE_C64:
        case DTYPE_F64: sort_wide_rows(call, row, end, call->spec[1], indices); break;
        default: SORT_ROWS(DTYPE_U8); break;
    }
}
