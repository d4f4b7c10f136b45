// elementwise_wide: one row of shaders/include/elementwise_wide.h, in int64, uint64, complex64 or float64; see
// shaders/ops/elementwise/elementwise_wide.comp. Blocks of operands are cast to the domain, then a row is a loop.

#include "strided.h"
#include "wide.h"

#define BLOCK 256u

typedef union Cell {
    int64_t l;
    uint64_t m;
    double d;
    Complex c;
} Cell;

// The results of a row for a block: results of the domain, or truths, or floats as doubles.
typedef void (*Row)(Cell *out, const Cell *a, const Cell *b, const uint8_t *c, uint32_t n);

#define SELF_same_result(member) .member
#define SELF_truth_result(member) .m
#define SELF_float_result(member) .d
#define LOOP(function, Type, member, result, body) \
    static void function(Cell *restrict out, const Cell *pa, const Cell *pb, const uint8_t *pc, uint32_t n) { \
        (void)pb, (void)pc; \
        for (uint32_t i = 0; i < n; i++) { \
            const Type a = pa[i].member, b = pb[i].member; \
            const bool c = pc[i]; \
            (void)a, (void)b, (void)c; \
            out[i] SELF_##result(member) = body; \
        } \
    }
#define LONG_ROW(id, name, result, body) LOOP(long_##name, int64_t, l, result, body)
#define ULONG_ROW(id, name, result, body) LOOP(ulong_##name, uint64_t, m, result, body)
#define COMPLEX_ROW(id, name, result, body) LOOP(complex_##name, Complex, c, result, body)
#define DOUBLE_ROW(id, name, result, body) LOOP(double_##name, double, d, result, body)
#include "../../shaders/include/elementwise_wide.h"

enum { same_result, truth_result, float_result };

static const struct {
    Row run;
    uint8_t result;
} ROWS[4][128] = {
#define LONG_ROW(id, name, result, body) [DOMAIN_I64][id] = {long_##name, result},
#define ULONG_ROW(id, name, result, body) [DOMAIN_U64][id] = {ulong_##name, result},
#define COMPLEX_ROW(id, name, result, body) [DOMAIN_C64][id] = {complex_##name, result},
#define DOUBLE_ROW(id, name, result, body) [DOMAIN_F64][id] = {double_##name, result},
#include "../../shaders/include/elementwise_wide.h"
};

static void load_cell(Cell *to, const uint8_t *from, uint32_t dtype, uint32_t domain) {
    switch (domain) {
        case DOMAIN_I64: to->l = load_long(from, dtype); break;
        case DOMAIN_U64: to->m = load_ulong(from, dtype); break;
        case DOMAIN_C64: to->c = load_complex(from, dtype); break;
        default: to->d = load_double(from, dtype); break;
    }
}

static void store_cell(uint8_t *to, size_t i, uint32_t dtype, uint32_t domain, const Cell *from) {
    switch (domain) {
        case DOMAIN_I64: store_long(to, i, dtype, from->l); break;
        case DOMAIN_U64: store_ulong(to, i, dtype, from->m); break;
        case DOMAIN_C64: store_complex(to, i, dtype, from->c); break;
        default: store_double(to, i, dtype, from->d); break;
    }
}

static uint32_t grain_of(const Call *call) {
    PUSH(ElementwiseWidePush);
    return chunk_grain(p->count, 8, BLOCK);
}

uint32_t chunks_elementwise_wide(const Call *call) {
    PUSH(ElementwiseWidePush);
    return chunk_count(p->count, grain_of(call));
}

void k_elementwise_wide(const Call *call, uint32_t chunk, uint32_t last_chunk) {
    PUSH(ElementwiseWidePush);
    const uint32_t dtype_out = call->spec[4], domain = call->spec[5], row = call->spec[6];
    const uint32_t grain = grain_of(call), begin = chunk * grain, end = chunk_end(last_chunk, grain, p->count);
    const int32_t *strides[3] = {p->a_strides, p->b_strides, p->c_strides};
    const int dims = used_dims(p->shape, 4);
    Cell a[BLOCK] = {0}, b[BLOCK] = {0}, out[BLOCK];
    uint8_t c[BLOCK] = {0};
    Place places[3];
    for (int k = 0; k < 3; k++) places[k] = place_of(begin, dims, p->shape, strides[k]);
    const uint32_t kind = ROWS[domain][row].result;
    // Truths are whole numbers, floats of complex numbers doubles.
    const uint32_t stored = kind == truth_result ? DOMAIN_U64 : kind == float_result ? DOMAIN_F64 : domain;
    for (uint32_t first = begin; first < end; first += BLOCK) {
        const uint32_t n = end - first < BLOCK ? end - first : BLOCK;
        for (uint32_t i = 0; i < n; i++) {
            for (int k = 0; k < 3; k++) {
                if (!call->buffer[k]) continue;
                const uint32_t dtype = call->spec[1 + k];
                const uint8_t *from = call->buffer[k] + places[k].offset * (ptrdiff_t)DTYPE_BYTES(dtype);
                if (k == 2) c[i] = load_bits(from, 0, dtype) != 0;
                else load_cell(k == 0 ? &a[i] : &b[i], from, dtype, domain);
                place_advance(&places[k], 1, dims, p->shape, strides[k]);
            }
        }
        ROWS[domain][row].run(out, a, b, c, n);
        for (uint32_t i = 0; i < n; i++) store_cell(call->buffer[3], first + i, dtype_out, stored, &out[i]);
    }
}

// Kernels of their own only for the sake of shader compile times.
uint32_t chunks_elementwise_complex(const Call *call) { return chunks_elementwise_wide(call); }
void k_elementwise_complex(const Call *call, uint32_t first, uint32_t last) { k_elementwise_wide(call, first, last); }
uint32_t chunks_elementwise_complex_math(const Call *call) { return chunks_elementwise_wide(call); }
void k_elementwise_complex_math(const Call *call, uint32_t first, uint32_t last) { k_elementwise_wide(call, first, last); }
