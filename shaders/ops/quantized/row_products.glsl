// The sums of products of few rows with quantized columns, over few_rows.glsl and codes.glsl.
//
// Affine codes go by 32, which fill BITS words and share scale and bias. The sum over k of x (scale * code + bias) is
// scale * (sum of x * code) + bias * (sum of x). So a weight takes a shift, a mask and a product. Small floats whose
// groups are of 32 go by group. Other modes go by eight.

const bool BY_GROUP = MODE_HAS_SMALL_FLOATS(MODE) && GROUP == 32u;
const uint DEPTH_AT_ONCE = MODE == MODE_AFFINE || BY_GROUP ? 32u : 8u;

void load_rows(Operand x, uint row0, uint depth, out Vec8 rows[ROWS]) {
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        rows[i] = load_eight(x, DTYPE_X, min(row0 + i, pc.p.m - 1u), depth);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        rows[i] = unpacked(rows[i], DTYPE_X);
}

void add_eights(Operand x, Matrix w, uint row0, uint column0, uint depth) {
    Codes codes[COLUMNS];
    Vec8 rows[ROWS];
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        codes[j] = codes_at(w, min(column0 + j, pc.p.n - 1u), pc.p.k, depth);
    load_rows(x, row0, depth, rows);
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        add_vec8s(rows, dequantized(codes[j]), j);
}

// Of 32 codes of each column.
uint words[COLUMNS * BITS];
float products[VALUES], totals[ROWS];

// The words of 32 codes of a row, in loads as wide as their alignment allows.
void load_run(Matrix w, uint row, uint depth, uint column) {
    uint64_t run = w.words + (uint64_t(row) * (pc.p.k / 32u) + depth / 32u) * (4u * BITS);
    if (BITS % 4u == 0u && aligned16(w.words)) {
        [[unroll]] for (uint i = 0; i < BITS / 4u; i++) {
            uvec4 four = U32x4s(run).v[i];
            [[unroll]] for (uint c = 0; c < 4u; c++)
                words[column * BITS + 4u * i + c] = four[c];
        }
    } else {
        [[unroll]] for (uint i = 0; i < BITS; i++)
            words[column * BITS + i] = U32s(run).v[i];
    }
}

// A code of four bits of a small float, times its place: a quarter of its number. Numbers below 1 are even steps, so what
// they would be with a leading 1 is cut.
float quarter_of(uint word, uint from) {
    uint size = (from > 22u ? word >> (from - 22u) : word << (22u - from)) & 0x1c00000u;
    float one = uintBitsToFloat(size | 0x3e000000u);
    float x = min(one, fma(2.0, one, -0.25));
    return uintBitsToFloat(floatBitsToUint(x) | (word << (28u - from) & 0x80000000u));
}

// Code i of a column as code_value() has it; of small floats the number, of four bits a quarter of it.
float code_of(uint column, uint i) {
    if (BY_GROUP) {
        uint word = words[column * BITS + i * BITS / 32u], from = i * BITS % 32u;
        return BITS == 4u ? quarter_of(word, from) : number_value(word >> from & 255u, MODE);
    }
    const uint PLACE = 23u - BITS;
    uint bit = i * BITS, word = words[column * BITS + bit / 32u], from = bit % 32u;
    if (from + BITS > 32u) word = (word >> from | words[column * BITS + bit / 32u + 1u] << (32u - from)) << PLACE;
    else word = from < PLACE ? word << (PLACE - from) : word >> (from - PLACE);
    return uintBitsToFloat(0x3f800000u | (word & (CODE_MASK << PLACE)));
}

void add_runs(Operand x, Matrix w, uint row0, uint column0, uint depth) {
    uint scales[COLUMNS], biases[COLUMNS];
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        uint row = min(column0 + j, pc.p.n - 1u), group = row * (pc.p.k / GROUP) + depth / GROUP;
        load_run(w, row, depth, j);
        if (BY_GROUP) scales[j] = uint(U8s(w.scales).v[group]);
        else {
            scales[j] = load_raw(w.scales, group, DTYPE_SCALES);
            biases[j] = load_raw(w.biases, group, DTYPE_SCALES);
        }
    }
    [[unroll]] for (uint i = 0; i < VALUES; i++)
        products[i] = 0.0;
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        totals[i] = 0.0;
    [[unroll]] for (uint part = 0; part < 4u; part++) {
        Vec8 rows[ROWS];
        load_rows(x, row0, depth + part * 8u, rows);
        [[unroll]] for (uint e = 0; e < 8u; e++) {
            [[unroll]] for (uint i = 0; i < ROWS; i++)
                if (!BY_GROUP) totals[i] += uintBitsToFloat(e < 4u ? rows[i].first[e] : rows[i].second[e - 4u]);
            [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
                float code = code_of(j, part * 8u + e);
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    products[i * COLUMNS + j] =
                        fma(uintBitsToFloat(e < 4u ? rows[i].first[e] : rows[i].second[e - 4u]), code, products[i * COLUMNS + j]);
            }
        }
    }
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        float s = 0.0, scale = 0.0, bias = 0.0;
        if (BY_GROUP) scale = scale_value(scales[j], MODE);
        else s = raw_float(scales[j], DTYPE_SCALES), scale = code_scale(s), bias = code_bias(s, raw_float(biases[j], DTYPE_SCALES));
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            uint at = i * COLUMNS + j;
            float product = BY_GROUP && BITS == 4u ? 4.0 * products[at] : products[at];
            sums[at] = floatBitsToUint(uintBitsToFloat(sums[at]) + fma(scale, product, BY_GROUP ? 0.0 : bias * totals[i]));
        }
    }
}

// Adds to the sums the products of DEPTH_AT_ONCE numbers of rows row0.. and columns column0...
void add_depth(Operand x, Matrix w, uint row0, uint column0, uint depth) {
    if (DEPTH_AT_ONCE == 32u) add_runs(x, w, row0, column0, depth);
    else add_eights(x, w, row0, column0, depth);
}

void clear_sums() {
    [[unroll]] for (uint i = 0; i < VALUES; i++)
        sums[i] = 0;
}

// Sets the sums of rows row0.. times columns column0..; each thread has its share of them.
void multiply_rows(Operand x, Matrix w, uint row0, uint column0) {
    clear_sums();
    for (uint depth = gl_LocalInvocationID.x * DEPTH_AT_ONCE; depth < pc.p.k; depth += THREADS * DEPTH_AT_ONCE)
        add_depth(x, w, row0, column0, depth);
}
