// elementwise: a chain of up to five rows of shaders/include/elementwise.h, block by block.
//
// A row is a loop over a block of 1024 registers that the compiler vectorises. Blocks stay in the L1 cache between the
// steps of a chain. Contiguous 4-byte operands are read in place and 4-byte results are written in place. Indices are
// 32 bits: up to 2^31 elements.

#include "../../shaders/slow_path.h"
#include "simd.h"
#include "strided.h"

#define BLOCK 1024u

// Registers hold the bits of a float, int or uint, whichever the row reads.
typedef float __attribute__((may_alias)) Float;
typedef int32_t __attribute__((may_alias)) Int;
typedef uint32_t __attribute__((may_alias)) Uint;

typedef void (*Row)(Uint *restrict out, const Uint *a, const Uint *b, const Uint *c, uint32_t n);

#define OPERANDS_1(Type) const Type a = ((const Type *)pa)[i];
#define OPERANDS_2(Type) OPERANDS_1(Type) const Type b = ((const Type *)pb)[i];
#define OPERANDS_3(Type) OPERANDS_2(Type) const Uint c = pc[i];
#define float_result ((Float *)out)[i]
#define int_result ((Int *)out)[i]
#define uint_result out[i]
// Two vectors at a time: engines load a constant anew for every place that uses it.
#define LOOP(function, Type, arity, result, body) \
    static void function(Uint *restrict out, const Uint *pa, const Uint *pb, const Uint *pc, uint32_t n) { \
        (void)pb, (void)pc; \
        _Pragma("clang loop interleave_count(2)") for (uint32_t i = 0; i < n; i++) { OPERANDS_##arity(Type) result = body; } \
    }
#define FLOAT_ROW(id, name, arity, result, body) LOOP(float_##name, Float, arity, result, body)
#define INT_ROW(id, name, arity, result, body) LOOP(int_##name, Int, arity, result, body)
#define UINT_ROW(id, name, arity, result, body) LOOP(uint_##name, Uint, arity, result, body)
// Few blocks hold numbers so large: those that do are gone through once more, one number at a time.
static bool any_slow(const Uint *pa, uint32_t n) {
    Uint any = 0;
    for (uint32_t i = 0; i < n; i++) any |= m_is_slow(((const Float *)pa)[i]);
    return any != 0;
}
#define SLOW_ROW(id, name, body) \
    static void slow_##name(Uint *restrict out, const Uint *pa, uint32_t n) { \
        for (uint32_t i = 0; i < n; i++) { OPERANDS_1(Float) if (m_is_slow(a)) float_result = body; } \
    }
// A block takes the fast path if all of its numbers allow it: most do.
#define FAST_ROW(id, name, arity, test, body) \
    static bool is_fast_##name(const Uint *pa, const Uint *pb, uint32_t n) { \
        const Uint *pc = pb; \
        Uint other = 0; \
        (void)pb, (void)pc; \
        for (uint32_t i = 0; i < n; i++) { OPERANDS_##arity(Float) other |= !(test); } \
        return !other; \
    } \
    LOOP(fast_##name, Float, arity, float_result, body)
#include "../../shaders/include/elementwise.h"

enum { KIND_FLOAT, KIND_INT, KIND_UINT }; // domains and kinds of results

static const struct {
    Row run;
    uint8_t kind; // of the result
} ROWS[3][128] = {
#define KIND_float_result KIND_FLOAT
#define KIND_int_result KIND_INT
#define KIND_uint_result KIND_UINT
#define FLOAT_ROW(id, name, arity, result, body) [KIND_FLOAT][id] = {float_##name, KIND_##result},
#define INT_ROW(id, name, arity, result, body) [KIND_INT][id] = {int_##name, KIND_##result},
#define UINT_ROW(id, name, arity, result, body) [KIND_UINT][id] = {uint_##name, KIND_##result},
#include "../../shaders/include/elementwise.h"
};

static void (*const SLOW[128])(Uint *restrict out, const Uint *a, uint32_t n) = {
#define FLOAT_ROW(id, name, arity, result, body)
#define INT_ROW(id, name, arity, result, body)
#define UINT_ROW(id, name, arity, result, body)
#define SLOW_ROW(id, name, body) [id] = slow_##name,
#include "../../shaders/include/elementwise.h"
};

static const struct {
    bool (*test)(const Uint *a, const Uint *b, uint32_t n);
    Row run;
} FAST[128] = {
#define FLOAT_ROW(id, name, arity, result, body)
#define INT_ROW(id, name, arity, result, body)
#define UINT_ROW(id, name, arity, result, body)
#define FAST_ROW(id, name, arity, test, body) [id] = {is_fast_##name, fast_##name},
#include "../../shaders/include/elementwise.h"
};

// ---- results rounded as a separate op would have stored them ------------------------------------------------------

#define ROUNDING(function, x_to_result) \
    static void function(Uint *r, uint32_t n) { \
        _Pragma("clang loop interleave_count(2)") for (uint32_t i = 0; i < n; i++) { \
            const Uint x = r[i]; \
            r[i] = x_to_result; \
        } \
    }
static void round_f16(Uint *r, uint32_t n) {
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) f4_store((float *)r + i, f4_from_f16(f16_from_f4(f4_load((float *)r + i))));
    for (; i < n; i++) r[i] = float_bits(f16_value(f16_bits(bits_float(r[i]))));
}
ROUNDING(round_bf16, bf16_bits(bits_float(x)) << 16)
ROUNDING(wrap_i8, (Uint)(int8_t)x)
ROUNDING(wrap_i16, (Uint)(int16_t)x)
ROUNDING(wrap_u8, (uint8_t)x)
ROUNDING(wrap_u16, (uint16_t)x)

static void (*const ROUND[3][2])(Uint *r, uint32_t n) = {
    [KIND_FLOAT] = {round_f16, round_bf16}, [KIND_INT] = {wrap_i8, wrap_i16}, [KIND_UINT] = {wrap_u8, wrap_u16}};

// ---- loads and stores ---------------------------------------------------------------------------------------------

// `n` elements from `from` on, `stride` elements apart.
static void load_strided(Uint *restrict to, const uint8_t *from, ptrdiff_t stride, uint32_t n, uint32_t dtype) {
    const ptrdiff_t step = stride * (ptrdiff_t)DTYPE_BYTES(dtype);
    if (stride == 0) {
        const Uint x = load_bits(from, 0, dtype);
        for (uint32_t i = 0; i < n; i++) to[i] = x;
        return;
    }
#define LOAD(d) \
    case d: \
        if (stride == 1) \
            for (uint32_t i = 0; i < n; i++) to[i] = load_bits(from, i, d); \
        else \
            for (uint32_t i = 0; i < n; i++) to[i] = load_bits(from + (ptrdiff_t)i * step, 0, d); \
        break;
    switch (dtype) {
        case DTYPE_BOOL:
            LOAD(DTYPE_U8)
            LOAD(DTYPE_U16)
            LOAD(DTYPE_I8)
            LOAD(DTYPE_I16)
            LOAD(DTYPE_F16)
            LOAD(DTYPE_BF16)
        default: LOAD(DTYPE_U32) // every 4-byte type
    }
}

static void store_block(uint8_t *out, uint32_t first, const Uint *restrict r, uint32_t n, uint32_t dtype) {
    uint8_t *restrict to = out + (size_t)first * DTYPE_BYTES(dtype);
#define STORE(d) \
    case d: \
        for (uint32_t i = 0; i < n; i++) store_bits(to, i, d, r[i]); \
        break;
    switch (dtype) {
        case DTYPE_BOOL:
            for (uint32_t i = 0; i < n; i++) to[i] = r[i] != 0;
            break;
        case DTYPE_I8: STORE(DTYPE_U8)
        case DTYPE_I16: STORE(DTYPE_U16)
        case DTYPE_F16:
            store_halves((uint16_t *)to, (const float *)r, n);
            break;
            STORE(DTYPE_BF16)
        default: STORE(DTYPE_U32)
    }
}

// An input: where it lies and how it is walked.
typedef struct Input {
    const uint8_t *data; // NULL: absent
    uint32_t dtype;
    const int32_t *strides; // NULL: contiguous
    Place place;
} Input;

// Elements first..first+n-1 as registers: in place where they lie so already, else loaded into `block`.
static const Uint *load_input(Input *in, Uint *block, uint32_t first, uint32_t n, const uint32_t *shape, int dims) {
    const uint32_t bytes = DTYPE_BYTES(in->dtype);
    if (!in->data) return block;
    if (!in->strides) {
        const uint8_t *from = in->data + (size_t)first * bytes;
        if (bytes == 4) return (const Uint *)from;
        load_strided(block, from, 1, n, in->dtype);
        return block;
    }
    for (uint32_t done = 0; done < n;) {
        uint32_t left = shape[dims - 1] - in->place.at[dims - 1], run = left < n - done ? left : n - done;
        const uint8_t *from = in->data + in->place.offset * (ptrdiff_t)bytes;
        place_advance(&in->place, run, dims, shape, in->strides);
        if (run == n && bytes == 4 && in->strides[dims - 1] == 1) return (const Uint *)from;
        load_strided(block + done, from, in->strides[dims - 1], run, in->dtype);
        done += run;
    }
    return block;
}

// Elements of a chunk: whole blocks, enough for a microsecond or two.
static uint32_t grain_of(const Call *call) {
    PUSH(ElementwisePush);
    return chunk_grain(p->count, call->spec[6] > 1 ? 4 : 1, BLOCK);
}

uint32_t chunks_elementwise(const Call *call) {
    PUSH(ElementwisePush);
    return chunk_count(p->count, grain_of(call));
}

void k_elementwise(const Call *call, uint32_t chunk, uint32_t last_chunk) {
    PUSH(ElementwisePush);
    const uint32_t dtype_out = call->spec[4], contiguous = call->spec[5], steps = call->spec[6];
    const uint32_t *words = call->spec + 7;
    const uint32_t grain = grain_of(call), begin = chunk * grain, end = chunk_end(last_chunk, grain, p->count);

    Uint blocks[10][BLOCK] __attribute__((aligned(64))), kept[BLOCK];
    const Uint *registers[10];
    for (int r = 0; r < 10; r++) registers[r] = blocks[r];
    const uint32_t most = end - begin < BLOCK ? end - begin : BLOCK;
    for (uint32_t i = 0; i < most; i++) blocks[3][i] = p->imm0, blocks[4][i] = p->imm1;
    const int32_t *strides[3] = {p->a_strides, p->b_strides, p->c_strides};
    const int dims = used_dims(p->shape, 4);
    Input inputs[3];
    for (int k = 0; k < 3; k++) {
        inputs[k] = (Input){call->buffer[k], call->spec[1 + k], contiguous ? NULL : strides[k], {{0}, 0}};
        if (!inputs[k].data) __builtin_memset(blocks[k], 0, most * sizeof(Uint));
        else if (!contiguous) inputs[k].place = place_of(begin, dims, p->shape, strides[k]);
    }

    uint8_t *out = call->buffer[3];
    const bool in_place = DTYPE_BYTES(dtype_out) == 4 && steps > 0;
    for (uint32_t first = begin; first < end; first += BLOCK) {
        const uint32_t n = end - first < BLOCK ? end - first : BLOCK;
        for (int k = 0; k < 3; k++) registers[k] = load_input(&inputs[k], blocks[k], first, n, p->shape, dims);
        for (uint32_t s = 0; s < steps; s++) {
            const uint32_t word = words[s], id = word & 0xffu, domain = word >> 8 & 3u, rounding = word >> 10 & 3u;
            const Uint *a = registers[word >> 12 & 15u], *b = registers[word >> 16 & 15u];
            const Uint *c = registers[word >> 20 & 15u];
            Uint *to = in_place && s == steps - 1 ? (Uint *)(out + (size_t)first * 4) : blocks[5 + s];
            const bool fast = domain == KIND_FLOAT && FAST[id].test && FAST[id].test(a, b, n);
            const bool slow = domain == KIND_FLOAT && !fast && SLOW[id] && any_slow(a, n);
            if (slow) a = __builtin_memcpy(kept, a, n * sizeof(Uint)); // the result may lie where the operand does
            (fast ? FAST[id].run : ROWS[domain][id].run)(to, a, b, c, n);
            if (slow) SLOW[id](to, a, n);
            // A value that is stored as the dtype to which it rounds is rounded then.
            const bool stored_so = s == steps - 1 && dtype_out == (rounding == 1 ? DTYPE_F16 : DTYPE_BF16);
            if (rounding && !stored_so) ROUND[ROWS[domain][id].kind][rounding - 1](to, n);
        }
        if (!in_place) store_block(out, first, registers[steps ? 4 + steps : 0], n, dtype_out);
    }
}

// Kernels of their own only for the sake of shader compile times.
#define SAME_KERNEL(name) \
    uint32_t chunks_##name(const Call *call) { return chunks_elementwise(call); } \
    void k_##name(const Call *call, uint32_t first, uint32_t last) { k_elementwise(call, first, last); }
SAME_KERNEL(elementwise_single)
SAME_KERNEL(elementwise_math)
SAME_KERNEL(elementwise_math_single)
