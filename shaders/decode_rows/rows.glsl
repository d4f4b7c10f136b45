// What the kernels of row-split layers share. A row of a product is made by one workgroup, so sums have a fixed order and there are no
// atomics; workgroups hand over words (decode/words.glsl). Phases of a layer, by their bits in PHASES:
//
//   qkv        norm, rows of q, k and v with their biases
//   attention  (key/value head, part of the positions): norms of heads, rope, softmax and values of that part
//   merge      the parts of attention, where there are more than two
//   o          rows of the output projection, added to the residual
//   gate_up    norm, rows of gate and up, activation(gate) * up
//   down       rows of the down projection, added to the residual
//
// For shapes whose weights take long to read and whose unrolled columns would not fit the instruction caches: 16 lanes read 16 bytes each
// of a row, RUN rows one behind the other, and keep their sums in registers; what one lane reads of the activations serves all of its
// rows. Scales and biases lie in the order of the loads, [row / RUN][512 features][group][row % RUN].
//
// layers.comp has all phases of all layers in one dispatch (POLL), phase.comp one phase of one layer behind a barrier. Both are the same
// code and give the same bits.

#define ACCUMULATORS 3
#include "decode/decode.glsl"
#include "decode/features.glsl"

layout(constant_id = 17) const uint PHASES = 63u;
layout(constant_id = 18) const uint GRID = 128u;  // workgroups of a sequence
layout(constant_id = 19) const uint PARTS = 2u;   // of the positions of a key/value head
layout(constant_id = 20) const uint QKV_RUN = 8u; // rows that a lane makes at once
layout(constant_id = 21) const uint O_RUN = 8u;
layout(constant_id = 22) const uint GATE_UP_RUN = 8u;
layout(constant_id = 23) const uint DOWN_RUN = 8u;

const uint PHASE_QKV = 1u, PHASE_ATTENTION = 2u, PHASE_MERGE = 4u, PHASE_O = 8u, PHASE_GATE_UP = 16u, PHASE_DOWN = 32u;
const bool ALL_PHASES = PHASES == 63u;

// Rows of a workgroup.
const uint QKV_ROWS = ALL_QKV / GRID, O_ROWS = HIDDEN / GRID, GATE_UP_ROWS = 2u * INTERMEDIATE / GRID, DOWN_ROWS = HIDDEN / GRID;

uint thread_lane() { return lane() & 15u; } // among those of a row
uint row_half() { return lane() >> 4; }     // which of the two runs of a warp

// ---- activations ----------------------------------------------------------------------------------------------------------

#define MOST(a, b) ((a) > (b) ? (a) : (b))
const uint MOST_DEPTH = MOST(MOST(HIDDEN, INTERMEDIATE), ALL_Q);
const uint MOST_CHUNKS = MOST_DEPTH / 32u;

const uint TILE = 64u;                                     // positions of a round of attention
const uint FEATURE_GROUPS = 8u;                            // whose parts of a score are added up
const uint SCRATCH = (FEATURE_GROUPS + 1u) * HEADS * TILE; // floats

// In 16 bits: of chunks of 32 features that share a scale, [high, low][half][chunk]; attention uses the same memory.
shared uvec4 vector[MOST(4u * MOST_CHUNKS, SCRATCH / 4u)];
shared vec2 vector_scale[MOST_CHUNKS]; // scale of a chunk, sum of its values
const uint SQUARES_PARTS = THREADS / SUBGROUP;
shared float squares_of[SQUARES_PARTS];

float scratch_get(uint i) { return uintBitsToFloat(vector[i / 4u][i % 4u]); }
void scratch_put(uint i, float x) { vector[i / 4u][i % 4u] = floatBitsToUint(x); }

uint bytes_of(uint a, uint b, uint c, uint d) { return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24; }

// Brings features 8 * eight to 8 * eight + 7 to shared memory, in the order of code_bytes(); four neighbours share a chunk.
void quantize(uint eight, vec4 a, vec4 b) {
    vec4 c = max(abs(a), abs(b));
    float most = max(max(c.x, c.y), max(c.z, c.w)), sum = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        most = max(most, subgroupShuffleXor(most, m));
        sum += subgroupShuffleXor(sum, m);
    }
    most = max(most, 1e-20);
    float steps = STEPS_16BIT / most;
    uvec4 k = floatBitsToUint(fma(a, vec4(steps), vec4(WHOLE))), l = floatBitsToUint(fma(b, vec4(steps), vec4(WHOLE)));
    uint chunk = eight / 4u, at = (eight / 2u & 1u) * MOST_CHUNKS + chunk, word = 2u * (eight & 1u);
    [[unroll]] for (uint part = 0; part < 2u; part++) { // low bytes, then high ones
        uint first = BITS == 8u ? bytes_of(k.x, k.y, k.z, k.w) : bytes_of(k.x, k.z, l.x, l.z);
        uint second = BITS == 8u ? bytes_of(l.x, l.y, l.z, l.w) : bytes_of(k.y, k.w, l.y, l.w);
        vector[(part == 0u ? 2u * MOST_CHUNKS : 0u) + at][word] = first;
        vector[(part == 0u ? 2u * MOST_CHUNKS : 0u) + at][word + 1u] = second;
        k = (k + 128u) >> 8;
        l = (l + 128u) >> 8;
    }
    if ((eight & 3u) == 0u) vector_scale[chunk] = vec2(most * (1.0 / STEPS_16BIT), sum);
}

// The residual at `from` times norm weights; the factor 1 / rms is left to norm_scale(). Ends behind a barrier.
void norm_to_vector(uint from, uint tag, uint64_t weights) {
    const uint EIGHTS = HIDDEN / 8u, rounds = (EIGHTS + THREADS - 1u) / THREADS;
    vec4 w[2u * rounds], x[2u * rounds];
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = min(thread() + n * THREADS, EIGHTS - 1u);
        w[2u * n] = load_quad(weights, 2u * eight, DTYPE_W);
        w[2u * n + 1u] = load_quad(weights, 2u * eight + 1u, DTYPE_W);
    }
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = thread() + n * THREADS;
        x[2u * n] = x[2u * n + 1u] = vec4(0);
        if (eight < EIGHTS) wait_eight(from + 32u * eight, tag, x[2u * n], x[2u * n + 1u]);
    }
    IF_POLLING(subgroupBarrier()); // lanes that waited, each for its own, meet again
    float squares = 0.0;
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = thread() + n * THREADS;
        vec4 a = x[2u * n], b = x[2u * n + 1u];
        squares = dot_on(b, b, dot_on(a, a, squares));
        if (eight < EIGHTS) quantize(eight, a * w[2u * n], b * w[2u * n + 1u]);
    }
    [[unroll]] for (uint m = 1u; m < SUBGROUP; m <<= 1)
        squares += subgroupShuffleXor(squares, m);
    if (thread() % SUBGROUP == 0u) squares_of[thread() / SUBGROUP] = squares;
    barrier();
}

float norm_scale() {
    float squares = 0.0;
    [[unroll]] for (uint i = 0; i < SQUARES_PARTS; i++)
        squares += squares_of[i];
    return inversesqrt(fma(squares, 1.0 / float(HIDDEN), pc.p.eps));
}

// `eights` times 8 values at `from`; all of them are in flight at once. Ends behind a barrier.
#define VALUES_TO_VECTOR(name, eights) \
    void name(uint from, uint tag) { \
        const uint rounds = ((eights) + THREADS - 1u) / THREADS; \
        vec4 x[2u * rounds]; \
        [[unroll]] for (uint n = 0; n < rounds; n++) { \
            uint eight = thread() + n * THREADS; \
            if (eight < (eights)) wait_eight(from + 32u * eight, tag, x[2u * n], x[2u * n + 1u]); \
        } \
        IF_POLLING(subgroupBarrier()); \
        [[unroll]] for (uint n = 0; n < rounds; n++) { \
            uint eight = thread() + n * THREADS; \
            if (eight < (eights)) quantize(eight, x[2u * n], x[2u * n + 1u]); \
        } \
        barrier(); \
    }
VALUES_TO_VECTOR(attended_values, ALL_Q / 8u)
VALUES_TO_VECTOR(gated_values, INTERMEDIATE / 8u)

struct Chunk {
    uvec4 high[2], low[2];
    float scale, sum;
};

Chunk chunk_get(uint chunk) {
    Chunk c;
    [[unroll]] for (uint i = 0; i < 2u; i++) {
        c.high[i] = vector[i * MOST_CHUNKS + chunk];
        c.low[i] = vector[(2u + i) * MOST_CHUNKS + chunk];
    }
    vec2 s = vector_scale[chunk];
    c.scale = s.x;
    c.sum = s.y;
    return c;
}

#include "decode/chunk_dot.glsl"

// ---- products -------------------------------------------------------------------------------------------------------------

// A unit is two runs of rows times 512 features. The units of a workgroup go along its rows first, two runs behind the other, and each warp takes
// neighbouring ones.
#define STEPS_OF(depth) ((depth) / 512u)
#define UNITS_OF(depth, rows, run) (((rows) + 2u * (run) - 1u) / (2u * (run)) * STEPS_OF(depth))
#define UNITS_OF_WARP(depth, rows, run) ((UNITS_OF(depth, rows, run) + WARPS - 1u) / WARPS)
// Pairs of runs that a warp has sums of.
#define PAIRS_OF(depth, rows, run) ((UNITS_OF_WARP(depth, rows, run) + STEPS_OF(depth) - 2u) / STEPS_OF(depth) + 1u)
#define SUMS_OF(depth, rows, run) (PAIRS_OF(depth, rows, run) * 2u * (run))
const uint SUMS = MOST(MOST(SUMS_OF(HIDDEN, QKV_ROWS, QKV_RUN), SUMS_OF(ALL_Q, O_ROWS, O_RUN)),
                       MOST(SUMS_OF(HIDDEN, GATE_UP_ROWS, GATE_UP_RUN), SUMS_OF(INTERMEDIATE, DOWN_ROWS, DOWN_RUN)));

// 16 lanes leave a sum for as many of them as exchange values.
const uint TOGETHER = SUBGROUP < 16u ? SUBGROUP : 16u, PIECES = 16u / TOGETHER;
shared float sums[WARPS * SUMS * PIECES];

const uint MOST_RUN = 8u;
const uint IN_FLIGHT = 8u * 4u / BITS; // rows whose codes a lane has asked for
Codes32 ring[8];
uint ring_scales_biases[8];
uint next_pair, next_step; // of the unit that is asked for next

// What a product does not load would otherwise be kept in registers from the one before.
void clear_ring() {
    [[unroll]] for (uint i = 0; i < 8u; i++) {
        ring[i].first = ring[i].second = uvec4(0);
        ring_scales_biases[i] = 0u;
    }
}

#define PRODUCT qkv
#define DEPTH HIDDEN
#define ROWS QKV_ROWS
#define RUN QKV_RUN
void qkv_row(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    scales_at = gl_WorkGroupID.x * ROWS + row;
    bool is_q = scales_at < ALL_Q, is_k = scales_at < ALL_Q + ALL_KV;
    codes = is_q ? ADDRESS(Q) : is_k ? ADDRESS(K) : ADDRESS(V);
    at = scales_at - (is_q ? 0u : is_k ? ALL_Q : ALL_Q + ALL_KV);
}
uint64_t qkv_scales_biases() { return ADDRESS(QKV_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT o
#define DEPTH ALL_Q
#define ROWS O_ROWS
#define RUN O_RUN
void o_row(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    codes = ADDRESS(O);
    at = scales_at = gl_WorkGroupID.x * ROWS + row;
}
uint64_t o_scales_biases() { return ADDRESS(O_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT gate_up
#define DEPTH HIDDEN
#define ROWS GATE_UP_ROWS
#define RUN GATE_UP_RUN
void gate_up_row(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    bool is_gate = row < ROWS / 2u;
    codes = is_gate ? ADDRESS(GATE) : ADDRESS(UP);
    at = gl_WorkGroupID.x * (ROWS / 2u) + row - (is_gate ? 0u : ROWS / 2u);
    scales_at = at + (is_gate ? 0u : INTERMEDIATE);
}
uint64_t gate_up_scales_biases() { return ADDRESS(GATE_UP_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT down
#define DEPTH INTERMEDIATE
#define ROWS DOWN_ROWS
#define RUN DOWN_RUN
void down_row(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    codes = ADDRESS(DOWN);
    at = scales_at = gl_WorkGroupID.x * ROWS + row;
}
uint64_t down_scales_biases() { return ADDRESS(DOWN_SCALES_BIASES); }
#include "product.glsl"
