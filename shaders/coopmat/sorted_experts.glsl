// For kernels of rows that are sorted by expert: constants, the rows of a tile, weights of a lane, and the end of a tile.
// The includer has WORKERS, COLUMNS, COLUMN_BLOCKS, WEIGHT_BITS, SUM_STRIDE, and SHARED uvec4 of shared memory, which has sums at the end.
//
// A sum takes its terms in any order, as long as both factors have the same. Four lanes share a column. Lane c takes codes 32 c to 32 c + 31
// of 128. Codes i and i + 4 of a word are neighbours in a matrix, since one mask finds both (of 8 bits, i and i + 2). x is put into the same
// order. Every kernel has this order, so a row's result does not depend on the kernel.
//   SCALED   1: x comes from half_rows, with a power of two for each 16 rows; 2: x are units of coopmat_experts_gated
//   IN_PLACE out has the order of `left`, else that of the sorted rows

#include "include/activation.glsl"

layout(constant_id = 1) const uint GROUP = 64;
layout(constant_id = 2) const uint DTYPE_SCALES = DTYPE_F16;
layout(constant_id = 3) const uint MODE = MODE_AFFINE;
layout(constant_id = 4) const uint SCALED = 0;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 6) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 7) const uint HAS_BIAS = 0;
layout(constant_id = 8) const uint UNIT = EXPERT_UNIT_SILU;
layout(constant_id = 9) const uint IN_PLACE = 0;
layout(constant_id = 10) const uint K = 1024;
const uint SCALE_BYTES = MODE == MODE_MXFP4 ? 1 : 2;

#include "include/vec4.glsl"

#ifdef GATED
#define JOINED 2 // matrices
#else
#define JOINED 1
#endif
#define SHRINK 16.0 // of units

// NVIDIA's driver (580) gives a thread no more registers than let as many workgroups run at once as shared memory does.
// So some kernels take more of it than they use: see matmul.comp.
shared uvec4 tile[SHARED];
#include "tiles.glsl"

uint first_row, rows, expert;

#ifdef FEW_ROWS
layout(constant_id = 11) const uint CHOSEN = 0;
shared uint choosing;     // a bit for each row that chose the expert
shared uint places[ROWS]; // of the rows, among all choices

// Where CHOSEN is not 0, `left` is the choice of at most ROWS rows, (rows, 2 * CHOSEN). A workgroup finds by itself which of them chose its
// expert. A row chooses an expert once. False if none did.
bool find_choices() {
    uint all = pc.p.x_rows * pc.p.divisor;
    if (gl_LocalInvocationIndex == 0) choosing = 0;
    barrier();
    expert = gl_WorkGroupID.x;
    for (uint i = gl_LocalInvocationIndex; i < all; i += WORKERS) {
        uint row = i / CHOSEN;
        if (uint(load_float(pc.address[11], i + row * CHOSEN, DTYPE_F32)) != expert) continue;
        atomicOr(choosing, 1u << row);
        places[row] = i;
    }
    barrier();
    rows = bitCount(choosing);
    return rows > 0;
}

uint place_of(uint row) {
    uint left = choosing;
    [[unroll]] for (uint i = 0; i < ROWS - 1; i++)
        if (i < row) left &= left - 1;
    return places[findLSB(left)];
}
#else
#define CHOSEN 0
#define find_choices() true
#define place_of(row) 0
#endif

// The tile of this workgroup; false if it has no rows.
bool find_tile() {
    if (CHOSEN > 0) return find_choices();
    uvec2 own = U32x2s(pc.address[12]).v[gl_WorkGroupID.x];
    first_row = own.x;
    rows = own.y & 255u;
    expert = own.y >> 8;
    return rows > 0;
}

uint left_of(uint row) { return CHOSEN > 0 ? place_of(row) : U32s(pc.address[11]).v[first_row + row]; }
uint x_row_of(uint left) { return min(left / pc.p.divisor, pc.p.x_rows - 1); }

// The block of 16 columns of block j of the subgroup, in its matrix. Gate and up alternate.
uint block_of(uint j) { return (gl_WorkGroupID.y * (COLUMNS / 16) + warp() * COLUMN_BLOCKS + j) / JOINED; }

uint low_halves(uint a, uint b) { return a & 0xffffu | b << 16; }
uint high_halves(uint a, uint b) { return a >> 16 | b & 0xffff0000u; }

// Pair q of the eight numbers that are multiplied with eight codes.
uint x_pair(uvec4 x, uint q) {
    if (WEIGHT_BITS == 8) return q % 2 == 0 ? low_halves(x[q], x[q + 1]) : high_halves(x[q - 1], x[q]);
    return q % 2 == 0 ? low_halves(x[q / 2], x[q / 2 + 2]) : high_halves(x[q / 2], x[q / 2 + 2]);
}

#ifdef EMULATED
uint half_pair(vec2 x) { return word_of(x); }
#else
uint half_pair(vec2 x) { return packHalf2x16(x); }
#endif

// Scale and bias of affine codes as float16. Of mxfp4 two factors whose product is the scale times 2^14: codes are read 2^14 too small.
uint pair_of_scales(uvec2 pair) {
    uint scale = pair.x, bias = pair.y;
    if (MODE == MODE_MXFP4) {
        int exponent = int(scale) - 127 + 14, first = exponent >> 1;
        return uint(clamp(first + 15, 0, 31) | clamp(exponent - first + 15, 0, 31) << 16) << 10;
    }
    if (DTYPE_SCALES == DTYPE_F16) return scale | bias << 16;
    return half_pair(vec2(bf16_value(scale), bf16_value(bias)));
}

const uint CODES_STRIDE = K / 8 * WEIGHT_BITS, SCALES_STRIDE = K / GROUP * SCALE_BYTES; // bytes from column to column
const uint RUNS = (K + 127) / 128;

// Bytes from the matrix of an expert to the lane's first column in it, for the blocks of 16 columns of a subgroup.
#define OWN_BLOCKS (COLUMN_BLOCKS / JOINED)
uint codes_place[OWN_BLOCKS], scales_place[OWN_BLOCKS];

void find_columns() {
    [[unroll]] for (uint i = 0; i < OWN_BLOCKS; i++) {
        uint column = min(block_of(i * JOINED), pc.p.n / 16 - 1) * 16 + lane() / 4;
        codes_place[i] = column * CODES_STRIDE;
        scales_place[i] = column * SCALES_STRIDE;
    }
}

// A lane's first place along the depth in a run of 128. Past the end it is a place before.
uint depth_of(uint run) {
    uint c = lane() % 4 * 32;
    return K % 128 == 0 ? min(run, RUNS - 1) * 128 + c : min(run * 128 + c, K - 32);
}

// Where a side's codes begin: columns of a subgroup are two sides for each of its blocks. Both sides have one address but for a constant.
uint64_t codes_of(uint side, uint depth) {
    uint block = side / 2;
    uint64_t matrix = pc.address[2 + block % JOINED * 3] + uint64_t(expert) * pc.p.n * CODES_STRIDE;
    return matrix + (codes_place[block / JOINED] + depth / 8 * WEIGHT_BITS) + side % 2 * 8 * CODES_STRIDE;
}

// The side's scale and bias for codes from a depth on.
uvec2 scale_of(uint side, uint depth) {
    uint block = side / 2, first = 3 + block % JOINED * 3;
    uint place = scales_place[block / JOINED] + depth / GROUP * SCALE_BYTES;
    uint64_t matrix = uint64_t(expert) * pc.p.n * SCALES_STRIDE;
    uint64_t at = pc.address[first] + matrix + place;
    if (MODE == MODE_MXFP4) return uvec2(U8s(at + side % 2 * 8 * SCALES_STRIDE).v[0], 0);
    uint64_t bias = pc.address[first + 1] + matrix + place;
    return uvec2(U16s(at + side % 2 * 8 * SCALES_STRIDE).v[0], U16s(bias + side % 2 * 8 * SCALES_STRIDE).v[0]);
}

// Pair i < 2 of four numbers of a column. Their codes are a word of 8 bits each, or a half of one of 4 bits.
PAIR pair_of_codes(uint word, uint side, uint i, uint scales) {
    PAIR both = pair_of(scales);
    if (WEIGHT_BITS == 8) return fma(bytes(word >> (8 * i)), both.xx, both.yy);
    uint u = word >> (side * 8);
    if (MODE == MODE_MXFP4) {
        u >>= 4 * i;
        return pair_of((u & 0x00070007u) << 9 | (u & 0x00080008u) << 12) * both.xx * both.yy;
    }
    return fma(i == 0 ? low_nibbles(u) : high_nibbles(u), both.xx, both.yy);
}

vec4 biased(vec4 sum, uint matrix, uint column) {
    if (HAS_BIAS == 0) return sum;
    [[unroll]] for (uint i = 0; i < 4; i++)
        sum[i] += load_float(pc.address[8 + matrix], expert * pc.p.n + column + i, DTYPE_BIAS);
    return sum;
}

vec4 units_of(vec4 gate, vec4 up) {
    const uint which = UNIT == EXPERT_UNIT_CLIPPED ? ACTIVATION_CLIPPED : UNIT == EXPERT_UNIT_SILU ? ACTIVATION_SILU : ACTIVATION_GELU_TANH;
    vec4 units;
    [[unroll]] for (uint i = 0; i < 4; i++)
        units[i] = gated_value(gate[i], up[i], which);
    return units;
}

// Sums of `count` rows of the tile from row `first` on go out of shared memory.
void store_rows(uint first, uint count) {
    const uint quads = COLUMNS / JOINED / 4;
    for (uint f = gl_LocalInvocationIndex; f < count * quads; f += WORKERS) {
        uint r = f / quads, quad = f % quads, row = first + r, column = (gl_WorkGroupID.y * quads + quad) * 4;
        if (row >= rows || column >= pc.p.n) continue;
        uint left = left_of(row), from = r * SUM_STRIDE + quad;
        float power = SCALED == 1 ? F32s(pc.address[1]).v[x_row_of(left) / 16] : SCALED == 2 ? SHRINK : 1.0;
#ifdef GATED
        from += quad / 4 * 4; // blocks of 16 columns alternate
        vec4 sum =
            units_of(biased(uintBitsToFloat(tile[from]) * power, 0, column), biased(uintBitsToFloat(tile[from + 4]) * power, 1, column)) /
            SHRINK;
#else
        vec4 sum = biased(uintBitsToFloat(tile[from]) * power, 0, column);
#endif
        if (DTYPE_OUT == DTYPE_F16) sum = within_half(sum);
        uint64_t to = pc.address[10] + uint64_t(IN_PLACE == 1 ? left : first_row + row) * (pc.p.n * DTYPE_BYTES(DTYPE_OUT));
        store_quad(to, column / 4, DTYPE_OUT, sum);
    }
}
