// copy: strided to strided over up to five dimensions, in runs along the last one that is not 1; see shaders/ops/elementwise/copy.comp.

#include "simd.h"
#include "strided.h"

#define DIMS 5

// The shift of a row by its starts, in elements.
static ptrdiff_t dynamic_shift(const struct CopyPush *p, const uint8_t *start, uint32_t row) {
    ptrdiff_t shift = 0;
    for (uint32_t d = 0; d < p->starts; d++) {
        int32_t s = ((const int32_t *)start)[row * p->starts + d], limit = (int32_t)p->start_limits[d];
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

// ---- turned matrices ------------------------------------------------------------------------------------------------

// Squares of SIDE elements: a line of cache is read and written at once, however far lines lie apart.
enum { SIDE = 16 };

// SIDE runs of SIDE elements, `from_stride` apart, become columns of rows `to_stride` apart.
static void turn_square(uint32_t *to, ptrdiff_t to_stride, const uint32_t *from, ptrdiff_t from_stride) {
    float square[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++) __builtin_memcpy(square[i], from + i * from_stride, sizeof square[i]);
    for (int r = 0; r < SIDE; r += 4) {
        f4 rows[4][SIDE / 4];
        for (int c = 0; c < SIDE; c += 4) {
            f4 v[4];
            for (int k = 0; k < 4; k++) v[k] = f4_load(&square[c + k][r]);
            f4_transpose(&v[0], &v[1], &v[2], &v[3]);
            for (int k = 0; k < 4; k++) rows[k][c / 4] = v[k];
        }
        for (int k = 0; k < 4; k++) __builtin_memcpy(to + (r + k) * to_stride, rows[k], sizeof rows[k]);
    }
}

#define TURN(Type) \
    for (uint32_t r = 0; r < rows; r++) \
        for (uint32_t c = 0; c < cols; c++) ((Type *)to)[r * to_stride + c] = ((const Type *)from)[c * from_stride + r];

static void turn_part(uint8_t *to, ptrdiff_t to_stride, const uint8_t *from, ptrdiff_t from_stride, uint32_t rows, uint32_t cols,
                      uint32_t bytes) {
    if (bytes == 4 && rows == SIDE && cols == SIDE) turn_square((uint32_t *)to, to_stride, (const uint32_t *)from, from_stride);
    else if (bytes == 16) TURN(Wide)
    else if (bytes == 8) TURN(uint64_t)
    else if (bytes == 4) TURN(uint32_t)
    else if (bytes == 2) TURN(uint16_t)
    else TURN(uint8_t)
}

// Whether rows of the output are contiguous in the input, element by element.
static bool turns(const struct CopyPush *p, int last) {
    return last > 0 && p->start_rows <= 1 && p->out_strides[last] == 1 && p->in_strides[last - 1] == 1 && p->in_strides[last] != 1;
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

static uint32_t columns(const struct CopyPush *p) {
    uint32_t cols = p->shape[used_dims(p->shape, DIMS) - 1];
    return cols ? cols : 1;
}

// Rows along the last dimension of a chunk.
static uint32_t grain(const struct CopyPush *p, uint32_t cols) {
    return chunk_grain(p->count / cols, cols, turns(p, used_dims(p->shape, DIMS) - 1) ? SIDE : 1);
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
    const bool by_row = dynamic != 0 && p->start_rows > 1;
    if (dynamic == 1 && !by_row) out += dynamic_shift(p, call->buffer[1], 0) * bytes;
    if (dynamic == 2 && !by_row) in += dynamic_shift(p, call->buffer[1], 0) * bytes;

    const int dims = used_dims(p->shape, DIMS), last = dims - 1;
    const uint32_t cols = columns(p), begin = chunk * grain(p, cols) * cols;
    const uint32_t end = chunk_end(last_chunk, grain(p, cols), p->count / cols) * cols;
    Place from = place_of(begin, dims, p->shape, p->in_strides), to = place_of(begin, dims, p->shape, p->out_strides);
    const bool turned = turns(p, last);
    for (uint32_t done = begin, rows = 1; done < end; done += rows * cols) {
        uint8_t *out_row = out + to.offset * bytes;
        const uint8_t *in_row = in + from.offset * bytes;
        if (turned) {
            const uint32_t left = p->shape[last - 1] - from.at[last - 1], most = (end - done) / cols;
            rows = min_u32(SIDE, min_u32(left, most));
            const ptrdiff_t to_stride = p->out_strides[last - 1], from_stride = p->in_strides[last];
            for (uint32_t c = 0; c < cols; c += SIDE) {
                turn_part(out_row + c * bytes, to_stride, in_row + c * from_stride * bytes, from_stride, rows, min_u32(SIDE, cols - c),
                          (uint32_t)bytes);
            }
        } else if (by_row) {
            const uint32_t each = p->count / p->start_rows; // elements that share starts
            for (uint32_t c = 0, n; c < cols; c += n) {
                const uint32_t row = (done + c) / each;
                n = min_u32(cols - c, (row + 1) * each - (done + c));
                const ptrdiff_t shift = dynamic_shift(p, call->buffer[1], row);
                copy_run(out_row + ((ptrdiff_t)c * p->out_strides[last] + (dynamic == 1 ? shift : 0)) * bytes, p->out_strides[last],
                         in_row + ((ptrdiff_t)c * p->in_strides[last] + (dynamic == 2 ? shift : 0)) * bytes, p->in_strides[last], n,
                         (uint32_t)bytes);
            }
        } else {
            copy_run(out_row, p->out_strides[last], in_row, p->in_strides[last], cols, (uint32_t)bytes);
        }
        for (uint32_t r = 0; r < rows; r++) {
            place_advance(&from, cols, dims, p->shape, p->in_strides);
            place_advance(&to, cols, dims, p->shape, p->out_strides);
        }
    }
}
