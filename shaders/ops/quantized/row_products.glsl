// The sums of products of few rows with quantized columns, over few_rows.glsl and codes.glsl.
//
// Affine codes go by 32, which fill BITS words and share scale and bias. The sum over k of x (scale * code + bias) is
// scale * (sum of x * code) + bias * (sum of x). So a weight takes a shift, a mask and a product. Other modes, whose
// groups may be of 16, go by eight.

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

// Code i of a column as code_value() has it.
float code_of(uint column, uint i) {
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
        U32s run = U32s(w.words + (uint64_t(row) * (pc.p.k / 32u) + depth / 32u) * (4u * BITS));
        [[unroll]] for (uint i = 0; i < BITS; i++)
            words[j * BITS + i] = run.v[i];
        scales[j] = load_raw(w.scales, group, DTYPE_SCALES);
        biases[j] = load_raw(w.biases, group, DTYPE_SCALES);
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
                totals[i] += uintBitsToFloat(e < 4u ? rows[i].first[e] : rows[i].second[e - 4u]);
            [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
                float code = code_of(j, part * 8u + e);
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    products[i * COLUMNS + j] =
                        fma(uintBitsToFloat(e < 4u ? rows[i].first[e] : rows[i].second[e - 4u]), code, products[i * COLUMNS + j]);
            }
        }
    }
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        float s = raw_float(scales[j], DTYPE_SCALES), scale = code_scale(s), bias = code_bias(s, raw_float(biases[j], DTYPE_SCALES));
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            uint at = i * COLUMNS + j;
            sums[at] = floatBitsToUint(uintBitsToFloat(sums[at]) + fma(scale, products[at], bias * totals[i]));
        }
    }
}

// Sets the sums of rows row0.. times columns column0..; each thread has its share of them.
void multiply_rows(Operand x, Matrix w, uint row0, uint column0) {
    [[unroll]] for (uint i = 0; i < VALUES; i++)
        sums[i] = 0;
    if (MODE == MODE_AFFINE) {
        for (uint depth = gl_LocalInvocationID.x * 32u; depth < pc.p.k; depth += THREADS * 32u) add_runs(x, w, row0, column0, depth);
    } else {
        for (uint depth = gl_LocalInvocationID.x * 8u; depth < pc.p.k; depth += THREADS * 8u) add_eights(x, w, row0, column0, depth);
    }
}
