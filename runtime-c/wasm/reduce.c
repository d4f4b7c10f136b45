// Kernels reduce and scan.
//
// A row is walked in runs of up to RUN registers, read through its strides into a small buffer; what folds a run then
// sees plain arrays and can use SIMD. Float sums add the runs' sums in double.

#include "../../shaders/include/combine.h"
#include "simd.h"

enum { RUN = 512 };

// Where the elements of one row lie.
typedef struct Row {
    const uint8_t *first; // strides may run backwards from here
    const struct ReducePush *p;
    uint32_t dtype;
} Row;

// Registers of elements first .. first + n - 1 of the row: in place where they lie so already, else in `run`.
static const uint32_t *read_run(const Row *row, size_t first, size_t n, uint32_t *run) {
    const uint32_t *shape = row->p->inner_shape;
    size_t width = shape[1];
    ptrdiff_t bytes = DTYPE_BYTES(row->dtype);
    ptrdiff_t outer = row->p->inner_strides[0] * bytes, inner = row->p->inner_strides[1] * bytes;
    if (shape[0] == 1 || shape[1] == 1) { // one dimension
        if (shape[1] == 1) inner = outer;
        const uint8_t *at = row->first + (ptrdiff_t)first * inner;
        if (inner == bytes && bytes == 4) return (const uint32_t *)at;
        if (inner == bytes && DTYPE_IS_FLOAT(row->dtype)) load_floats((float *)run, at, 0, n, row->dtype);
        else
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

// ---- folding a run --------------------------------------------------------------------------------------------------

static float sum_floats(const float *run, size_t n) {
    f4 a = f4_splat(0), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a += f4_load(run + i), b += f4_load(run + i + 4);
        c += f4_load(run + i + 8), d += f4_load(run + i + 12);
    }
    float sum = f4_sum((a + b) + (c + d));
    for (; i < n; i++) sum += run[i];
    return sum;
}

// The largest element (`sign` -1: the smallest, negated); NaN when there is one.
static float max_floats(const float *run, size_t n, float sign) {
    f4 a = f4_splat(-__builtin_inff()), b = a;
    i4 nan = {0, 0, 0, 0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f4 u = f4_load(run + i) * sign, v = f4_load(run + i + 4) * sign;
        nan |= (u != u) | (v != v);
        a = f4_max(a, u), b = f4_max(b, v);
    }
    float best = -__builtin_inff();
    for (int l = 0; l < 4; l++) best = m_maximum(best, f4_max(a, b)[l]);
    for (; i < n; i++) best = m_maximum(best, run[i] * sign);
    return (nan[0] | nan[1] | nan[2] | nan[3]) ? __builtin_nanf("") : best;
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
        case OP_ALL: return fold_with(OP_ALL, DTYPE_BOOL, folded, run, n);
        default: return fold_with(OP_ANY, DTYPE_BOOL, folded, run, n);
    }
}

// ---- folding a row --------------------------------------------------------------------------------------------------

static uint32_t fold_row(const Row *row, uint32_t op) {
    uint32_t buffer[RUN], folded = identity(op, row->dtype), cols = row->p->cols;
    double sum = 0;
    for (size_t first = 0; first < cols; first += RUN) {
        size_t n = min_u32(RUN, cols - (uint32_t)first);
        const uint32_t *run = read_run(row, first, n, buffer);
        if (op == OP_ALL || op == OP_ANY) {
            for (size_t i = 0; i < n; i++) buffer[i] = truth(run[i], row->dtype);
            run = buffer;
        }
        if (op == OP_SUM && DTYPE_IS_FLOAT(row->dtype)) sum += sum_floats((const float *)run, n);
        else folded = fold_run(op, row->dtype, folded, run, n);
    }
    return op == OP_SUM && DTYPE_IS_FLOAT(row->dtype) ? float_bits((float)sum) : folded;
}

static uint32_t logsumexp_row(const Row *row) {
    uint32_t buffer[RUN], cols = row->p->cols;
    float most = bits_float(fold_row(row, OP_MAX)), *y = (float *)buffer;
    if (!is_finite(most)) return float_bits(most); // nothing but -inf, or an inf or NaN that decides alone
    double sum = 0;
    for (size_t first = 0; first < cols; first += RUN) {
        size_t n = min_u32(RUN, cols - (uint32_t)first);
        const float *x = (const float *)read_run(row, first, n, buffer);
        for (size_t i = 0; i < n; i++) y[i] = m_exp(x[i] - most);
        sum += sum_floats(y, n);
    }
    return float_bits(most + m_log((float)sum));
}

// Position of the extreme: runs whose extreme does not beat the best so far are not looked into.
static uint32_t arg_row(const Row *row, uint32_t op) {
    uint32_t buffer[RUN], cols = row->p->cols, best = 0, best_key = 0;
    for (size_t first = 0; first < cols; first += RUN) {
        size_t n = min_u32(RUN, cols - (uint32_t)first);
        const uint32_t *run = read_run(row, first, n, buffer);
        if (DTYPE_IS_FLOAT(row->dtype)) {
            float sign = op == OP_ARGMIN ? -1.0f : 1.0f, most = max_floats((const float *)run, n, sign);
            if (first && extreme_key(op, float_bits(most * sign), row->dtype) <= best_key) continue;
        }
        for (size_t i = 0; i < n; i++) {
            uint32_t key = extreme_key(op, run[i], row->dtype);
            if (first + i && key <= best_key) continue;
            best_key = key;
            best = (uint32_t)(first + i);
        }
    }
    return best;
}

// ---- folding columns ------------------------------------------------------------------------------------------------

// Rows that are neighbours in memory while their elements are not (a sum over the first axis) are folded together, so
// that memory is read in order: floats add BLOCK elements in float, the blocks in double. A column's sum is the same
// whatever its neighbours are, so neither chunks nor threads change it.
enum { BLOCK = 32, COLUMNS = 256 };

INLINE void sum_columns(const uint8_t *first, const struct ReducePush *p, uint32_t dtype, size_t n, double *sums) {
    float block[COLUMNS];
    uint32_t left = 0, height = p->inner_shape[0], width = p->inner_shape[1];
    for (size_t c = 0; c < n; c++) sums[c] = 0, block[c] = 0;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            ptrdiff_t offset = (ptrdiff_t)y * p->inner_strides[0] + (ptrdiff_t)x * p->inner_strides[1];
            const uint8_t *at = first + offset * (ptrdiff_t)DTYPE_BYTES(dtype);
            size_t c = 0;
            for (; c + 4 <= n; c += 4) f4_store(block + c, f4_load(block + c) + f4_load_as(at, c, dtype));
            for (; c < n; c++) block[c] += bits_float(load_bits(at, c, dtype));
            if (++left < BLOCK) continue;
            for (c = 0; c < n; c++) sums[c] += (double)block[c], block[c] = 0;
            left = 0;
        }
    }
    for (size_t c = 0; c < n; c++) sums[c] += (double)block[c];
}

static void store_column_sums(const Call *call, const uint8_t *first, uint32_t r, uint32_t n) {
    PUSH(ReducePush);
    double sums[COLUMNS];
    switch (call->spec[1]) {
        case DTYPE_F32: sum_columns(first, p, DTYPE_F32, n, sums); break;
        case DTYPE_F16: sum_columns(first, p, DTYPE_F16, n, sums); break;
        default: sum_columns(first, p, DTYPE_BF16, n, sums); break;
    }
    for (uint32_t c = 0; c < n; c++)
        store_bits(call->buffer[1], r + c, call->spec[2], float_bits((float)sums[c]));
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
    return call->spec[3] == OP_SUM && DTYPE_IS_FLOAT(call->spec[1]) && p->outer_strides[d] == 1 && p->outer_shape[d] >= 4;
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
            store_column_sums(call, row.first, r, n);
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

// One element after the other; float sums run in double so that long rows keep float32's precision.
INLINE void scan_row(const Call *call, uint32_t op, size_t base, size_t cols) {
    uint32_t dtype = call->spec[1], dtype_out = call->spec[2];
    bool reverse = call->spec[4], exclusive = call->spec[5], is_sum = op == OP_SUM && DTYPE_IS_FLOAT(dtype);
    uint32_t folded = identity(op, dtype);
    double sum = 0;
    for (size_t i = 0; i < cols; i++) {
        size_t at = base + (reverse ? cols - 1 - i : i);
        uint32_t before = folded, bits = load_bits(call->buffer[0], at, dtype);
        if (is_sum) folded = float_bits((float)(sum += bits_float(bits)));
        else folded = combine(op, dtype, folded, bits);
        store_bits(call->buffer[1], at, dtype_out, exclusive ? before : folded);
    }
}

void k_scan(const Call *call) {
    PUSH(RowsPush);
    for (size_t r = 0; r < p->rows; r++) {
        size_t base = r * p->cols;
        switch (call->spec[3]) {
            case OP_SUM: scan_row(call, OP_SUM, base, p->cols); break;
            case OP_PROD: scan_row(call, OP_PROD, base, p->cols); break;
            case OP_MIN: scan_row(call, OP_MIN, base, p->cols); break;
            case OP_MAX: scan_row(call, OP_MAX, base, p->cols); break;
            default: scan_row(call, OP_LOGSUMEXP, base, p->cols); break;
        }
    }
}
