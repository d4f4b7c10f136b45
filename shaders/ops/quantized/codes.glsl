// A quantized matrix read in eights (vec8.glsl): eight codes lie in one group and share its scale, and its bias where MODE is affine.
// In MODE symmetric the bias follows from the scale.

#include "include/math/small_float.h"

struct Matrix {
    uint64_t words, scales, biases;
};

// Vec8 codes, not yet shifted to the lowest bit, with their scale and bias as they lie in memory.
struct Codes {
    uvec2 words;
    uint shift, scale, bias;
};

const Codes NO_CODES = Codes(uvec2(0), 0, 0, 0); // zeros

// The matrix that begins `elements` after those at the addresses.
Matrix matrix_of(uint64_t words, uint64_t scales, uint64_t biases, uint64_t elements) {
    uint64_t factors = elements / GROUP * DTYPE_BYTES(DTYPE_SCALES);
    return Matrix(words + elements / 8 * BITS, scales + factors, biases + factors);
}

// Codes of small floats; rows need not be whole runs of 32.
Codes small_floats_at(Matrix w, uint row, uint columns, uint first) {
    uint eight = row * (columns / 8u) + first / 8u;
    U32s words = U32s(w.words + uint64_t(eight) * BITS);
    uint scale = uint(U8s(w.scales).v[row * (columns / GROUP) + first / GROUP]);
    return Codes(uvec2(words.v[0], BITS == 8 ? words.v[1] : 0u), 0, scale, 0);
}

// Codes first .. first + 7 of a row of `columns`.
Codes codes_at(Matrix w, uint row, uint columns, uint first) {
    if (MODE_HAS_SMALL_FLOATS(MODE)) return small_floats_at(w, row, columns, first);
    uint64_t chunk = uint64_t(row) * (columns / 32u) + first / 32u;
    uint group = row * (columns / GROUP) + first / GROUP, part = first / 8u % 4u;
    return Codes(words8(w.words + chunk * (4u * BITS), part), shift8(part), load_raw(w.scales, group, DTYPE_SCALES),
                 MODE == MODE_AFFINE ? load_raw(w.biases, group, DTYPE_SCALES) : 0u);
}

Vec8 numbers_of(Codes c) {
    float scale = scale_value(c.scale, MODE);
    Vec8 e;
    [[unroll]] for (uint j = 0; j < 4u; j++) {
        e.first[j] = floatBitsToUint(scale * number_value(code_at(c.words, j), MODE));
        e.second[j] = floatBitsToUint(scale * number_value(code_at(c.words, j + 4u), MODE));
    }
    return e;
}

Vec8 dequantized(Codes c) {
    if (MODE_HAS_SMALL_FLOATS(MODE)) return numbers_of(c);
    uvec2 codes = shifted8(c.words, c.shift);
    float s = raw_float(c.scale, DTYPE_SCALES), scale = code_scale(s);
    float bias = code_bias(s, MODE == MODE_AFFINE ? raw_float(c.bias, DTYPE_SCALES) : -0.5 * scale);
    Vec8 e;
    [[unroll]] for (uint j = 0; j < 4u; j++) {
        e.first[j] = floatBitsToUint(fma(scale, code_value(code_at(codes, j)), bias));
        e.second[j] = floatBitsToUint(fma(scale, code_value(code_at(codes, j + 4u)), bias));
    }
    return e;
}
