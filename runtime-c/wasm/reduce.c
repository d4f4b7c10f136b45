// Kernels reduce and scan.
//
// A row is walked in runs of up to RUN registers, read through its strides into a small buffer. The functions that fold
// a run then see plain arrays and can use SIMD. Float sums add the runs' sums in double.

#include "../../shaders/include/combine.h"
#include "exponential.h"

enum { RUN = 512 };

// Where the elements of one row lie.
typedef struct Row {
    const uint8_t *first; // strides may run backwards from here
    const struct ReducePush *p;
    uint32_t dtype;
} Row;

#define WIDEN(type, to) \
    for (size_t i = 0; i < n; i++) run[i] = (uint32_t)(to)((const type *)at)[i]

// Registers of n neighbours in memory: in place where they are that already, else in `run`.
static const uint32_t *load_registers(const uint8_t *at, size_t n, uint32_t dtype, uint32_t *run) {
    switch (dtype) {
        case DTYPE_F32:
        case DTYPE_U32:
        case DTYPE_I32: return (const uint32_t *)at;
        case DTYPE_F16:
        case DTYPE_BF16: load_floats((float *)run, at, 0, n, dtype); break;
        case DTYPE_U16: WIDEN(uint16_t, uint32_t); break;
        case DTYPE_I16: WIDEN(int16_t, int32_t); break;
        case DTYPE_I8: WIDEN(int8_t, int32_t); break;
        default: WIDEN(uint8_t, uint32_t); break;
    }
    return run;
}

// Registers of elements first .. first + n - 1 of the row: in place where they lie so already, else in `run`.
static const uint32_t *read_run(const Row *row, size_t first, size_t n, uint32_t *run) {
    const uint32_t *shape = row->p->inner_shape;
    size_t width = shape[1];
    ptrdiff_t bytes = DTYPE_BYTES(row->dtype);
    ptrdiff_t outer = row->p->inner_strides[0] * bytes, inner = row->p->inner_strides[1] * bytes;
    if (shape[0] == 1 || shape[1] == 1) { // one dimension
        if (shape[1] == 1) inner = outer;
        const uint8_t *at = row->first + (ptrdiff_t)first * inner;
        if (inner == bytes) return load_registers(at, n, row->dtype, run);
        for (size_t i = 0; i < n; i++, at += inner) run[i] = load_bits(at, 0, row->dtype);
        return run;
    }
    size_t y = first / width, x = first % width;
    for (size_t i = 0; i < n; i++) {
        run[i] = load_bits(row->first + (ptrdiff_t)y * outer + (ptrdiff_t)x * inner, 0, row->dtype);
        if (++x == width) x = 0, y++;
    }
    return run;
}

// Elements that a run may have: more where read_run leaves them in place.
static size_t most_of(const Row *row) {
    const struct ReducePush *p = row->p;
    const bool line = p->inner_shape[0] == 1 || p->inner_shape[1] == 1;
    return line && DTYPE_BYTES(row->dtype) == 4 && p->inner_strides[p->inner_shape[1] != 1] == 1 ? 16 * RUN : RUN;
}

// ---- folding a run --------------------------------------------------------------------------------------------------

// The largest element (`sign` -1: the smallest, negated); NaN when there is one.
INLINE float most_signed(const float *run, size_t n, float sign) {
    f4 most[4];
    i4 nan = {0, 0, 0, 0};
    for (int k = 0; k < 4; k++) most[k] = f4_splat(-__builtin_inff());
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 4; k++) {
            f4 v = f4_load(run + i + 4 * k) * sign;
            nan |= v != v;
            most[k] = f4_max(most[k], v);
        }
    f4 all = f4_max(f4_max(most[0], most[1]), f4_max(most[2], most[3]));
    float best = -__builtin_inff();
    for (int l = 0; l < 4; l++) best = m_maximum(best, all[l]);
    for (; i < n; i++) best = m_maximum(best, run[i] * sign);
    return (nan[0] | nan[1] | nan[2] | nan[3]) ? __builtin_nanf("") : best;
}

static float max_floats(const float *run, size_t n, float sign) {
    return sign < 0 ? most_signed(run, n, -1.0f) : most_signed(run, n, 1.0f);
}

// The general loop; inlined with constant operators so that the compiler sees plain additions, comparisons, ….
INLINE uint32_t fold_with(uint32_t op, uint32_t dtype, uint32_t folded, const uint32_t *run, size_t n) {
    for (size_t i = 0; i < n; i++) folded = combine(op, dtype, folded, run[i]);
    return folded;
}

INLINE uint32_t fold_op(uint32_t op, uint32_t dtype, uint32_t folded, const uint32_t *run, size_t n) {
    if (DTYPE_IS_FLOAT(dtype)) return fold_with(op, DTYPE_F32, folded, run, n);
    if (DTYPE_IS_SIGNED(dtype)) return fold_with(op, DTYPE_I32, folded, run, n);
    return fold_with(op, DTYPE_U32, folded, run, n);
}

INLINE uint32_t fold_truth(uint32_t op, uint32_t dtype, uint32_t folded, const uint32_t *run, size_t n) {
    for (size_t i = 0; i < n; i++) folded = combine(op, DTYPE_BOOL, folded, truth(run[i], dtype));
    return folded;
}

static uint32_t fold_run(uint32_t op, uint32_t dtype, uint32_t folded, const uint32_t *run, size_t n) {
    bool is_float = DTYPE_IS_FLOAT(dtype);
    switch (op) {
        case OP_SUM: return fold_op(OP_SUM, dtype, folded, run, n);
        case OP_PROD: return fold_op(OP_PROD, dtype, folded, run, n);
        case OP_MIN:
            if (is_float) return float_bits(m_minimum(bits_float(folded), -max_floats((const float *)run, n, -1.0f)));
            return fold_op(OP_MIN, dtype, folded, run, n);
        case OP_MAX:
            if (is_float) return float_bits(m_maximum(bits_float(folded), max_floats((const float *)run, n, 1.0f)));
            return fold_op(OP_MAX, dtype, folded, run, n);
        case OP_ALL: return is_float ? fold_truth(OP_ALL, DTYPE_F32, folded, run, n) : fold_truth(OP_ALL, DTYPE_U32, folded, run, n);
        default: return is_float ? fold_truth(OP_ANY, DTYPE_F32, folded, run, n) : fold_truth(OP_ANY, DTYPE_U32, folded, run, n);
    }
}

// ---- folding a row --------------------------------------------------------------------------------------------------

static uint32_t fold_row(const Row *row, uint32_t op) {
    uint32_t buffer[RUN], folded = identity(op, row->dtype), cols = row->p->cols;
    double sum = 0;
    const bool adds = op == OP_SUM && DTYPE_IS_FLOAT(row->dtype);
    const size_t most = adds ? RUN : most_of(row);
    for (size_t first = 0; first < cols; first += most) {
        size_t n = min_u32((uint32_t)most, cols - (uint32_t)first);
        const uint32_t *run = read_run(row, first, n, buffer);
        if (adds) sum += sum_floats((const float *)run, n);
        else folded = fold_run(op, row->dtype, folded, run, n);
    }
    return adds ? float_bits((float)sum) : folded;
}

static uint32_t logsumexp_row(const Row *row) {
    uint32_t buffer[RUN], cols = row->p->cols;
    float most = bits_float(fold_row(row, OP_MAX)), *y = (float *)buffer;
    if (!is_finite(most)) return float_bits(most); // nothing but -inf, or an inf or NaN that decides alone
    double sum = 0;
    for (size_t first = 0; first < cols; first += RUN) {
        size_t n = min_u32(RUN, cols - (uint32_t)first);
        const float *x = (const float *)read_run(row, first, n, buffer);
        sum += sum_exponentials(y, x, n, most);
    }
    return float_bits(most + m_log((float)sum));
}

// Where the first of n floats is that equals `wanted`, which is among them; NaN equals NaN.
static size_t find_float(const float *run, size_t n, float wanted) {
    size_t i = 0;
    f4 w = f4_splat(wanted);
    bool nan = wanted != wanted;
    for (; i + 16 <= n; i += 16) {
        f4 a = f4_load(run + i), b = f4_load(run + i + 4), c = f4_load(run + i + 8), d = f4_load(run + i + 12);
        i4 hit = nan ? (a != a) | (b != b) | (c != c) | (d != d) : (a == w) | (b == w) | (c == w) | (d == w);
        if (hit[0] | hit[1] | hit[2] | hit[3]) break;
    }
    while (i + 1 < n && !(nan ? run[i] != run[i] : run[i] == wanted)) i++;
    return i;
}

// The largest of n keys.
INLINE uint32_t most_key(uint32_t op, uint32_t dtype, const uint32_t *run, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = extreme_key(op, run[i], dtype);
        most = key > most ? key : most;
    }
    return most;
}

// Position of the extreme: first that of each run, and where it beats the best so far, its place in the run.
INLINE uint32_t arg_integers(const Row *row, uint32_t op, uint32_t dtype) {
    uint32_t buffer[RUN], cols = row->p->cols, best = 0, best_key = 0;
    for (size_t first = 0; first < cols; first += RUN) {
        size_t n = min_u32(RUN, cols - (uint32_t)first), i = 0;
        const uint32_t *run = read_run(row, first, n, buffer);
        uint32_t key = most_key(op, dtype, run, n);
        if (first && key <= best_key) continue;
        while (extreme_key(op, run[i], dtype) != key) i++;
        best_key = key;
        best = (uint32_t)(first + i);
    }
    return best;
}

static uint32_t arg_floats(const Row *row, uint32_t op) {
    uint32_t buffer[RUN], cols = row->p->cols, best = 0, best_key = 0;
    float sign = op == OP_ARGMIN ? -1.0f : 1.0f;
    const size_t most_run = most_of(row);
    for (size_t first = 0; first < cols; first += most_run) {
        size_t n = min_u32((uint32_t)most_run, cols - (uint32_t)first);
        const float *run = (const float *)read_run(row, first, n, buffer);
        float most = max_floats(run, n, sign) * sign;
        uint32_t key = extreme_key(op, float_bits(most), DTYPE_F32);
        if (first && key <= best_key) continue;
        best_key = key;
        best = (uint32_t)(first + find_float(run, n, most));
    }
    return best;
}

static uint32_t arg_row(const Row *row, uint32_t op) {
    if (DTYPE_IS_FLOAT(row->dtype)) return arg_floats(row, op);
    if (DTYPE_IS_SIGNED(row->dtype))
        return op == OP_ARGMIN ? arg_integers(row, OP_ARGMIN, DTYPE_I32) : arg_integers(row, OP_ARGMAX, DTYPE_I32);
    return op == OP_ARGMIN ? arg_integers(row, OP_ARGMIN, DTYPE_U32) : arg_integers(row, OP_ARGMAX, DTYPE_U32);
}

// ---- folding columns ------------------------------------------------------------------------------------------------

// Some rows are neighbours in memory while their elements are not, as in a sum over the first axis. They are folded
// together, so that memory is read in order. Floats add BLOCK elements in float, the blocks in double. A column's sum
// is the same whatever its neighbours are, so neither chunks nor threads change it.
enum { BLOCK = 32, COLUMNS = 256 };

// Rows that are added at once: columns are loaded and stored once for all of them.
enum { TOGETHER = 4 };

// block += the rows, one after the other.
INLINE void add_rows(float *block, const uint8_t *const *rows, uint32_t count, uint32_t dtype, size_t n) {
    size_t c = 0;
    if (count == TOGETHER)
        for (; c + 4 <= n; c += 4) {
            f4 sum = f4_load(block + c) + f4_load_as(rows[0], c, dtype);
            sum += f4_load_as(rows[1], c, dtype);
            sum += f4_load_as(rows[2], c, dtype);
            f4_store(block + c, sum + f4_load_as(rows[3], c, dtype));
        }
    for (size_t i = 0; i < count; i++)
        for (size_t k = c; k < n; k++) block[k] += bits_float(load_bits(rows[i], k, dtype));
}

INLINE void sum_columns(const uint8_t *first, const struct ReducePush *p, uint32_t dtype, size_t n, double *sums) {
    float block[COLUMNS];
    const uint8_t *rows[TOGETHER];
    const uint32_t width = p->inner_shape[1], count = p->inner_shape[0] * width;
    for (size_t c = 0; c < n; c++) sums[c] = 0, block[c] = 0;
    for (uint32_t i = 0, y = 0, x = 0; i < count; i++) {
        ptrdiff_t offset = (ptrdiff_t)y * p->inner_strides[0] + (ptrdiff_t)x * p->inner_strides[1];
        rows[i % TOGETHER] = first + offset * (ptrdiff_t)DTYPE_BYTES(dtype);
        if (++x == width) x = 0, y++;
        const bool last = i + 1 == count;
        if (last || i % TOGETHER == TOGETHER - 1) add_rows(block, rows, i % TOGETHER + 1, dtype, n);
        if (!last && i % BLOCK != BLOCK - 1) continue;
        for (size_t c = 0; c < n; c++) sums[c] += (double)block[c], block[c] = 0;
    }
}

static void store_column_sums(const Call *call, const uint8_t *first, uint32_t r, uint32_t n) {
    PUSH(ReducePush);
    double sums[COLUMNS];
    switch (call->spec[1]) {
        case DTYPE_F32: sum_columns(first, p, DTYPE_F32, n, sums); break;
        case DTYPE_F16: sum_columns(first, p, DTYPE_F16, n, sums); break;
        default: sum_columns(first, p, DTYPE_BF16, n, sums); break;
    }
    for (uint32_t c = 0; c < n; c++) store_bits(call->buffer[1], r + c, call->spec[2], float_bits((float)sums[c]));
}

// Folds one row of n columns into `folded`. For argmin and argmax `folded` has keys, and `places` gets row `y` if its
// key is better.
INLINE void fold_columns_with(uint32_t op, uint32_t dtype, uint32_t *folded, const uint32_t *run, size_t n) {
    for (size_t c = 0; c < n; c++) folded[c] = combine(op, dtype, folded[c], run[c]);
}

INLINE void place_columns_with(uint32_t op, uint32_t dtype, uint32_t *keys, uint32_t *places, uint32_t y, const uint32_t *run, size_t n) {
    for (size_t c = 0; c < n; c++) {
        uint32_t key = extreme_key(op, run[c], dtype);
        places[c] = key > keys[c] ? y : places[c];
        keys[c] = key > keys[c] ? key : keys[c];
    }
}

INLINE void fold_columns_as(uint32_t op, uint32_t dtype, uint32_t *folded, uint32_t *places, uint32_t y, const uint32_t *run, size_t n) {
    switch (op) {
        case OP_SUM: fold_columns_with(OP_SUM, dtype, folded, run, n); break;
        case OP_PROD: fold_columns_with(OP_PROD, dtype, folded, run, n); break;
        case OP_MIN: fold_columns_with(OP_MIN, dtype, folded, run, n); break;
        case OP_MAX: fold_columns_with(OP_MAX, dtype, folded, run, n); break;
        case OP_ARGMIN: place_columns_with(OP_ARGMIN, dtype, folded, places, y, run, n); break;
        case OP_ARGMAX: place_columns_with(OP_ARGMAX, dtype, folded, places, y, run, n); break;
        case OP_ALL:
            for (size_t c = 0; c < n; c++) folded[c] &= truth(run[c], dtype);
            break;
        default:
            for (size_t c = 0; c < n; c++) folded[c] |= truth(run[c], dtype);
            break;
    }
}

static void store_columns(const Call *call, const uint8_t *first, uint32_t r, uint32_t n) {
    PUSH(ReducePush);
    uint32_t dtype = call->spec[1], op = call->spec[3], width = p->inner_shape[1];
    uint32_t buffer[COLUMNS], folded[COLUMNS], places[COLUMNS];
    bool is_place = op == OP_ARGMIN || op == OP_ARGMAX;
    for (uint32_t c = 0; c < n; c++) folded[c] = is_place ? 0 : identity(op, dtype), places[c] = 0;
    for (uint32_t y = 0; y < p->cols; y++) {
        ptrdiff_t offset = (ptrdiff_t)(y / width) * p->inner_strides[0] + (ptrdiff_t)(y % width) * p->inner_strides[1];
        const uint32_t *run = load_registers(first + offset * (ptrdiff_t)DTYPE_BYTES(dtype), n, dtype, buffer);
        if (DTYPE_IS_FLOAT(dtype)) fold_columns_as(op, DTYPE_F32, folded, places, y, run, n);
        else if (DTYPE_IS_SIGNED(dtype)) fold_columns_as(op, DTYPE_I32, folded, places, y, run, n);
        else fold_columns_as(op, DTYPE_U32, folded, places, y, run, n);
    }
    for (uint32_t c = 0; c < n; c++) store_bits(call->buffer[1], r + c, call->spec[2], is_place ? places[c] : folded[c]);
}

// The innermost outer dimension; those that a call does not use are 1 and come last.
static int inmost(const struct ReducePush *p) {
    int d = 2;
    while (d > 0 && p->outer_shape[d] == 1) d--;
    return d;
}

// Whether a call's rows are folded as columns: a matter of the call alone, never of the chunk.
static bool folds_columns(const Call *call) {
    PUSH(ReducePush);
    int d = inmost(p);
    return call->spec[3] != OP_LOGSUMEXP && p->outer_strides[d] == 1 && p->outer_shape[d] >= 4;
}

// ---- reduce ---------------------------------------------------------------------------------------------------------

static uint32_t reduce_grain(const Call *call) {
    PUSH(ReducePush);
    return chunk_grain(p->rows, p->cols, folds_columns(call) ? COLUMNS : 1);
}

uint32_t chunks_reduce(const Call *call) {
    PUSH(ReducePush);
    return chunk_count(p->rows, reduce_grain(call));
}

void k_reduce(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(ReducePush);
    uint32_t dtype = call->spec[1], dtype_out = call->spec[2], op = call->spec[3];
    uint32_t grain = reduce_grain(call), end = chunk_end(last, grain, p->rows);
    uint32_t width = p->outer_shape[inmost(p)];
    bool columns = folds_columns(call);
    Row row = {.p = p, .dtype = dtype};
    for (uint32_t r = chunk * grain, n = 1; r < end; r += n) {
        uint32_t rest = r;
        ptrdiff_t base = 0;
        for (int d = 2; d >= 0; d--) {
            base += (ptrdiff_t)(rest % p->outer_shape[d]) * p->outer_strides[d];
            rest /= p->outer_shape[d];
        }
        row.first = call->buffer[0] + base * (ptrdiff_t)DTYPE_BYTES(dtype);
        if (columns) {
            n = min_u32(COLUMNS, min_u32(end - r, width - r % width));
            if (op == OP_SUM && DTYPE_IS_FLOAT(dtype)) store_column_sums(call, row.first, r, n);
            else store_columns(call, row.first, r, n);
            continue;
        }
        uint32_t result;
        if (op == OP_LOGSUMEXP) result = logsumexp_row(&row);
        else if (op == OP_ARGMIN || op == OP_ARGMAX) result = arg_row(&row, op);
        else result = fold_row(&row, op);
        store_bits(call->buffer[1], r, dtype_out, result);
    }
}

// ---- scan -----------------------------------------------------------------------------------------------------------

typedef double d2 __attribute__((vector_size(16)));

// Two doubles as floats, before two zeros. The empty asm hides that from the compiler, which would take them one by
// one.
INLINE f4 narrow_doubles(d2 x) {
    f4 y = __builtin_convertvector(__builtin_shufflevector(x, (d2){0, 0}, 0, 1, 2, 3), f4);
#ifdef __wasm__
    __asm__("" : "+r"(y));
#endif
    return y;
}

// Running sums of n floats after `sum`, in double so that long rows keep float32's precision. Four elements add up
// among themselves first, so a sum waits only for every fourth addition. Returns the last one.
static double scan_sums(const float *x, float *y, size_t n, double sum) {
    d2 before = {sum, sum};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        f4 v = f4_load(x + i);
        d2 low = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1), d2), zero = {0, 0};
        d2 high = __builtin_convertvector(__builtin_shufflevector(v, v, 2, 3), d2);
        low += __builtin_shufflevector(zero, low, 0, 2);
        high += __builtin_shufflevector(zero, high, 0, 2);
        high += __builtin_shufflevector(low, low, 1, 1);
        d2 a = before + low, b = before + high;
        before += __builtin_shufflevector(high, high, 1, 1);
        f4_store(y + i, __builtin_shufflevector(narrow_doubles(a), narrow_doubles(b), 0, 1, 4, 5));
    }
    sum = before[0];
    for (; i < n; i++) y[i] = (float)(sum += x[i]);
    return sum;
}

INLINE void scan_with(uint32_t op, uint32_t dtype, const uint32_t *x, uint32_t *y, size_t n, uint32_t folded) {
    for (size_t i = 0; i < n; i++) y[i] = folded = combine(op, dtype, folded, x[i]);
}

INLINE void scan_op(uint32_t op, uint32_t dtype, const uint32_t *x, uint32_t *y, size_t n) {
    if (DTYPE_IS_FLOAT(dtype)) scan_with(op, DTYPE_F32, x, y + 1, n, y[0]);
    else if (DTYPE_IS_SIGNED(dtype)) scan_with(op, DTYPE_I32, x, y + 1, n, y[0]);
    else scan_with(op, DTYPE_U32, x, y + 1, n, y[0]);
}

static void store_registers(uint8_t *out, size_t first, const uint32_t *y, size_t n, uint32_t dtype) {
    if (DTYPE_IS_FLOAT(dtype)) store_floats(out, first, (const float *)y, n, dtype);
    else if (DTYPE_BYTES(dtype) == 4) __builtin_memcpy((uint32_t *)out + first, y, n * 4);
    else
        for (size_t i = 0; i < n; i++) store_bits(out, first + i, dtype, y[i]);
}

static void turn(uint32_t *x, size_t n) {
    for (size_t i = 0, j = n; i + 1 < j--; i++) {
        uint32_t a = x[i];
        x[i] = x[j];
        x[j] = a;
    }
}

// A row in runs of registers; y[0] is the result so far, so an exclusive scan stores y and another one y + 1.
static void scan_row(const Call *call, size_t base, size_t cols) {
    uint32_t dtype = call->spec[1], dtype_out = call->spec[2], op = call->spec[3];
    bool reverse = call->spec[4], exclusive = call->spec[5];
    bool direct = op == OP_SUM && DTYPE_IS_FLOAT(dtype) && dtype_out == DTYPE_F32 && !reverse && !exclusive;
    uint32_t x[RUN], y[RUN + 1];
    double sum = 0;
    y[0] = identity(op, dtype);
    for (size_t done = 0, n; done < cols; done += n) {
        n = cols - done < RUN ? cols - done : RUN;
        size_t at = base + (reverse ? cols - done - n : done);
        const uint32_t *run = load_registers(call->buffer[0] + at * DTYPE_BYTES(dtype), n, dtype, x);
        if (reverse) {
            if (run != x) __builtin_memcpy(x, run, n * 4);
            turn(x, n);
            run = x;
        }
        switch (op) {
            case OP_SUM:
                if (direct) {
                    sum = scan_sums((const float *)run, (float *)call->buffer[1] + at, n, sum);
                    continue;
                }
                if (DTYPE_IS_FLOAT(dtype)) sum = scan_sums((const float *)run, (float *)y + 1, n, sum);
                else scan_op(OP_SUM, dtype, run, y, n);
                break;
            case OP_PROD: scan_op(OP_PROD, dtype, run, y, n); break;
            case OP_MIN: scan_op(OP_MIN, dtype, run, y, n); break;
            case OP_MAX: scan_op(OP_MAX, dtype, run, y, n); break;
            default: scan_op(OP_LOGSUMEXP, dtype, run, y, n); break;
        }
        uint32_t last = y[n], *from = exclusive ? y : y + 1;
        if (reverse) turn(from, n);
        store_registers(call->buffer[1], at, from, n, dtype_out);
        y[0] = last;
    }
}

static uint32_t scan_grain(const Call *call) {
    PUSH(ScanPush);
    return chunk_grain(p->rows, p->cols, 1);
}

uint32_t chunks_scan(const Call *call) {
    PUSH(ScanPush);
    return chunk_count(p->rows, scan_grain(call));
}

void k_scan(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(ScanPush);
    uint32_t grain = scan_grain(call), end = chunk_end(last, grain, p->rows);
    for (size_t r = (size_t)chunk * grain; r < end; r++) scan_row(call, r * p->cols, p->cols);
}
