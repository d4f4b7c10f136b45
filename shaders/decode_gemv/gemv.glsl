// The common part of the gemv kernels. A row of a product is made by one workgroup, so sums have a fixed order and there are no
// atomics. Workgroups exchange words (decode/words.glsl). Phases of a layer, by their bits in PHASES:
//
//   qkv        norm, rows of q, k and v with their biases, of q maybe also those of the gates of what its heads attend to
//   attention  (key/value head, part of the positions): norms of heads, rope, softmax and values of that part
//   merge      the parts of attention, if there are more than two
//   o          rows of the output projection, added to the residual
//   router     norm, a score of each expert; where a layer has experts
//   gate_up    norm, rows of gate and up, activation(gate) * up
//   down       rows of the down projection, added to the residual
//
// With experts, gate and up are the rows of those that a token chose (experts.glsl), and down has rows of each of them.
//
// They are for shapes whose weights take long to read and whose unrolled columns would not fit the instruction caches.
// 16 lanes read 16 bytes each of a row, RUN rows one after the other, and keep their sums in registers. The bytes that one lane
// reads of the activations serves all of its rows. Scales and biases lie in the order of the loads, [row /
// RUN][group][row % RUN]. Dense rows have none.
//
// layers.comp has all phases of all layers in one dispatch (POLL), phase.comp one phase of one layer after a barrier.
// Both are the same code and give the same bits. recurrent.comp has the phases of layers with another part in the place of attention. Where
// there are such (RECURRENT), hybrid.comp has all phases of all layers.

#define ACCUMULATORS 3
#include "decode/decode.glsl"
#include "decode/features.glsl"

layout(constant_id = 18) const uint PHASES = 127u;
layout(constant_id = 19) const uint GRID = 128u;  // workgroups of a sequence
layout(constant_id = 20) const uint PARTS = 2u;   // of the positions of a key/value head
layout(constant_id = 21) const uint QKV_RUN = 8u; // rows that a lane makes at once
layout(constant_id = 22) const uint O_RUN = 8u;
layout(constant_id = 23) const uint GATE_UP_RUN = 8u;
layout(constant_id = 24) const uint DOWN_RUN = 8u;

const uint PHASE_QKV = 1u, PHASE_ATTENTION = 2u, PHASE_MERGE = 4u, PHASE_O = 8u, PHASE_GATE_UP = 16u, PHASE_DOWN = 32u, PHASE_ROUTER = 64u;
const bool ALL_PHASES = PHASES == 127u;

// Rows that a workgroup has of the first product in any layer: teams share as many, also where there are fewer.
layout(constant_id = 30) const uint QKV_MOST = 8u;

// Rows of the matrices of the first product, and those of a workgroup.
const uint ATTENDED_ROWS = ALL_Q * (1u + GATED); // of q, with its gates
#ifdef RECURRENT
#include "net_sizes.glsl"
#else
#define IS_NET false
const uint Q_ROWS = ATTENDED_ROWS, K_ROWS = ALL_KV, QKV_ROWS = (ATTENDED_ROWS + 2u * ALL_KV) / GRID;
#endif

// The tag of words that layers of one kind alone write.
#ifndef OWN_TAG
#define OWN_TAG tag_of(LAYER)
#endif

// Rows of a workgroup. If workgroups do not share the residual evenly they take whole eights, and the last ones have fewer or none.
const bool EVEN_RESIDUAL = HIDDEN % GRID == 0u;
const uint O_ROWS = EVEN_RESIDUAL ? HIDDEN / GRID : (HIDDEN / GRID / 8u + 1u) * 8u, GATE_UP_ROWS = 2u * INTERMEDIATE / GRID;

#ifndef OWN_INVOCATION
uint workgroup() { return gl_WorkGroupID.x; }
#endif
uint thread_lane() { return lane() & 15u; } // among those of a row

#include "experts.glsl"
#include "extras.glsl"

// The row of the residual that is row `row` of this workgroup. Runs of `run` rows after the last one are the last run once more.
uint residual_row(uint row, const uint run) {
    uint at = workgroup() * O_ROWS + row;
    return EVEN_RESIDUAL ? at : min(at, HIDDEN - run);
}

// Those of down: with experts as many of each.
const uint DOWN_ROWS = SLOTS * O_ROWS;

// Down multiplies so many features at once, where shared memory has no room for all. Its rows are in DOWN_PARTS parts then.
const uint DOWN_DEPTH = EXPERT_SIZE / DOWN_PARTS;
uint down_part = 0u;

// ---- activations ----------------------------------------------------------------------------------------------------------

#define MAX(a, b) ((a) > (b) ? (a) : (b))
const uint MAX_DEPTH = MAX(MAX(HIDDEN, SLOTS *DOWN_DEPTH), ALL_Q);
const uint MAX_CHUNKS = MAX_DEPTH / 32u;

const uint TILE = 64u * UNROLL; // positions of a round of attention
const uint FEATURE_GROUPS = 8u; // whose parts of a score are added up
// The query heads of a key head, or some of them where heads are long: their sums over values take most registers, and much code.
const uint HEAD_SPLIT = HEAD_DIM <= 128u ? 1u : HEADS % 4u == 0u ? HEADS / 2u : HEADS % 2u == 0u ? 2u : 1u;
const uint OWN_HEADS = HEADS / HEAD_SPLIT;                     // of a workgroup of attention
const uint SCRATCH = (FEATURE_GROUPS + 1u) * OWN_HEADS * TILE; // floats

const uint OWN_FOURS = (OWN_HEADS + 2u) * (HEAD_DIM / 4u); // of the token's own q, k and v

// In 16 bits: of chunks of 32 features that share a scale, [high, low][half][chunk], or for dense weights as they come.
// Attention uses the same memory, which no phase reads any more then. It holds scratch values, and after them the
// token's own q, k and v.
shared uvec4 vector[MAX(4u * MAX_CHUNKS, SCRATCH / 4u + OWN_FOURS)];
shared vec2 vector_scale[MAX_CHUNKS]; // scale of a chunk, sum of its values
const uint SQUARES_PARTS = THREADS / SUBGROUP;
shared float squares_of[SQUARES_PARTS];

float scratch_get(uint i) { return uintBitsToFloat(vector[i / 4u][i % 4u]); }
void scratch_put(uint i, float x) { vector[i / 4u][i % 4u] = floatBitsToUint(x); }

#include "decode/dense_dot.glsl"

uint bytes_of(uint a, uint b, uint c, uint d) { return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24; }

// Brings features 8 * eight to 8 * eight + 7 to shared memory, in the order of the weights; four neighbours share a chunk. All
// lanes take part, also those that store nothing.
void quantize(uint eight, bool stores, vec4 a, vec4 b, const uint format) {
    const uint bits = CODE_BITS(format);
    vec4 c = max(abs(a), abs(b));
    float most = max(max(c.x, c.y), max(c.z, c.w)), sum = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        most = max(most, subgroupShuffleXor(most, m));
        sum += subgroupShuffleXor(sum, m);
    }
    most = max(most, 1e-20);
    float steps = STEPS_16BIT / most;
    uvec4 k = floatBitsToUint(fma(a, vec4(steps), vec4(WHOLE))), l = floatBitsToUint(fma(b, vec4(steps), vec4(WHOLE)));
    uint chunk = eight / 4u, at = (eight / 2u & 1u) * MAX_CHUNKS + chunk, word = 2u * (eight & 1u);
    if (bits == 16u) {
        if (stores) vector[eight] = uvec4(pair_of(k.x, k.y), pair_of(k.z, k.w), pair_of(l.x, l.y), pair_of(l.z, l.w));
    } else [[unroll]]
        for (uint part = 0; part < 2u; part++) { // low bytes, then high ones
            uint first = bits == 8u ? bytes_of(k.x, k.y, k.z, k.w) : bytes_of(k.x, k.z, l.x, l.z);
            uint second = bits == 8u ? bytes_of(l.x, l.y, l.z, l.w) : bytes_of(k.y, k.w, l.y, l.w);
            if (stores) {
                vector[(part == 0u ? 2u * MAX_CHUNKS : 0u) + at][word] = first;
                vector[(part == 0u ? 2u * MAX_CHUNKS : 0u) + at][word + 1u] = second;
            }
            k = (k + 128u) >> 8;
            l = (l + 128u) >> 8;
        }
    if (stores && (eight & 3u) == 0u) vector_scale[chunk] = vec2(most * (1.0 / STEPS_16BIT), sum);
}

// Declares `x`: `eights` times 8 words at `from`, two quads a round; all of them are in flight at once.
#define ASK_EIGHTS(x, rounds, eights, from, tag) \
    uvec4 x[2u * rounds]; \
    [[unroll]] for (uint n = 0; n < 2u * rounds; n++) \
        x[n] = uvec4(thread() + n / 2u * THREADS < (eights) ? ~tag : tag); \
    POLL_ALL([[unroll]] for (uint n = 0; n < rounds; n++) { \
        if ((words_missing(x[2u * n], tag) | words_missing(x[2u * n + 1u], tag)) != 0u) { \
            uint64_t words = state() + (from + 32u * (thread() + n * THREADS)); \
            x[2u * n] = Shared4(words).v[0]; \
            x[2u * n + 1u] = Shared4(words).v[1]; \
            IF_POLLING(missing = true;) \
        } \
    }) \
    IF_POLLING(subgroupBarrier();) // lanes that waited, each for its own, meet again

// The residual at `from` times norm weights; the factor 1 / rms is left to norm_scale(). Ends with a barrier.
void norm_to_vector(uint from, uint tag, uint64_t weights, const uint format) {
    const uint EIGHTS = HIDDEN / 8u, rounds = (EIGHTS + THREADS - 1u) / THREADS;
    vec4 w[2u * rounds];
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = min(thread() + n * THREADS, EIGHTS - 1u);
        w[2u * n] = load_quad(weights, 2u * eight, DTYPE_W);
        w[2u * n + 1u] = load_quad(weights, 2u * eight + 1u, DTYPE_W);
    }
    ASK_EIGHTS(x, rounds, EIGHTS, from, tag)
    float squares = 0.0;
    [[unroll]] for (uint n = 0; n < rounds; n++) {
        uint eight = thread() + n * THREADS;
        vec4 a = word_value(x[2u * n]), b = word_value(x[2u * n + 1u]);
        squares = dot_on(b, b, dot_on(a, a, squares));
        quantize(eight, eight < EIGHTS, a * w[2u * n], b * w[2u * n + 1u], format);
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

// `eights` times 8 values at `from`. Ends with a barrier.
// One code serves all rounds, which pass on what they have loaded.
#define VALUES_TO_VECTOR(name, eights, format) \
    void name(uint from, uint tag) { \
        const uint rounds = ((eights) + THREADS - 1u) / THREADS; \
        ASK_EIGHTS(x, rounds, eights, from, tag) \
        uint count = rounds > 1u ? rounds + (pc.p.capacity >> 31) : 1u; /* + 0: compilers unroll loops of a length that they know */ \
        [[dont_unroll]] for (uint n = 0; n < count; n++) { \
            uint eight = thread() + n * THREADS; \
            quantize(eight, eight < (eights), word_value(x[0]), word_value(x[1]), format); \
            [[unroll]] for (uint i = 2u; i < 2u * rounds; i++) \
                x[i - 2u] = x[i]; \
        } \
        barrier(); \
    }
VALUES_TO_VECTOR(attended_values, ALL_Q / 8u, O_FORMAT)
VALUES_TO_VECTOR(gated_values, SLOTS *DOWN_DEPTH / 8u, DOWN_FORMAT)

struct Chunk {
    uvec4 high[2], low[2];
    float scale, sum;
};

Chunk chunk_get(uint chunk) {
    Chunk c;
    [[unroll]] for (uint i = 0; i < 2u; i++) {
        c.high[i] = vector[i * MAX_CHUNKS + chunk];
        c.low[i] = vector[(2u + i) * MAX_CHUNKS + chunk];
    }
    vec2 s = vector_scale[chunk];
    c.scale = s.x;
    c.sum = s.y;
    return c;
}

#include "decode/chunk_dot.glsl"

// Eights 0, 16, 32 and 48 from the lane's on, of the step of 512 features that chunk `place` is in. Features begin at chunk
// `first`. Zeros follow the last one.
Eights eights_get(uint first, uint place, const uint depth) {
    Eights e;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        uint eight = (place & ~15u) * 4u + i * 16u + thread_lane();
        bool is_there = depth % 512u == 0u || eight < depth / 8u;
        e.x[i] = uvec4(0);
        e.scales[i] = 0.0;
        if (is_there) {
            e.x[i] = vector[4u * first + eight];
            e.scales[i] = vector_scale[first + eight / 4u].x;
        }
    }
    return e;
}

// ---- products -------------------------------------------------------------------------------------------------------------

// A unit is a run of rows times 512 features, or times as many multiples of 128 as are left. A team of 16 lanes makes
// it. The units of a workgroup go along its rows first, one run after the other. Each team takes neighbouring units, in
// sections that reach into two runs at most. Teams after the last unit repeat a unit, and their result is not used.
const uint TEAMS = THREADS / 16u;
#define STEPS_OF(depth) (((depth) + 511u) / 512u)
#define UNITS_OF_TEAM(depth, rows, run) (((rows) / (run) * STEPS_OF(depth) + TEAMS - 1u) / TEAMS)
#define SECTIONS(depth, rows, run) ((UNITS_OF_TEAM(depth, rows, run) + STEPS_OF(depth)) / (STEPS_OF(depth) + 1u))
#define SECTION(depth, rows, run) ((UNITS_OF_TEAM(depth, rows, run) + SECTIONS(depth, rows, run) - 1u) / SECTIONS(depth, rows, run))
// Whether a section may reach into a second run.
#define HAS_TURN(depth, rows, run) (STEPS_OF(depth) % SECTION(depth, rows, run) != 0u)
// Whether teams have no units after the last one.
#define EVEN(depth, rows, run) ((rows) / (run) * STEPS_OF(depth) % (TEAMS * SECTION(depth, rows, run) * SECTIONS(depth, rows, run)) == 0u)

uint team() { return thread() >> 4; }

// 16 lanes leave a sum for as many of them as exchange values.
const uint TOGETHER = SUBGROUP < 16u ? SUBGROUP : 16u, PIECES = 16u / TOGETHER;
const uint MAX_RUN = 8u;
#define FOLDED(run) ((run) > 4u ? 8u : (run) > 2u ? 4u : (run))
#define SUMS_OF_TEAM(depth, rows, run) (SECTIONS(depth, rows, run) * 2u * FOLDED(run))
const uint ROUTER_SUMS = EXPERTS == 0u ? 0u : SUMS_OF_TEAM(HIDDEN, ROUTER_ROWS, ROUTER_RUN);
const uint MAX_SUMS = MAX(MAX(MAX(SUMS_OF_TEAM(HIDDEN, QKV_MOST, QKV_RUN), SUMS_OF_TEAM(ALL_Q, O_ROWS, O_RUN)), ROUTER_SUMS),
                          MAX(SUMS_OF_TEAM(HIDDEN, GATE_UP_ROWS, GATE_UP_RUN), SUMS_OF_TEAM(DOWN_DEPTH, DOWN_ROWS, DOWN_RUN)));
shared float sums[TEAMS * MAX_SUMS * PIECES];

#define LANE_BYTES(bits) ((bits) == 16u ? 16u : (bits) * 4u) // from a lane's codes to those of the next
#define IN_FLIGHT(bits) (8u * 4u / (bits))                   // rows whose codes a lane has asked for
Codes32 ring[8];                                             // of 16 bits two to a row
uint ring_scales_biases[8];
// Where this lane finds the units of a section, as if all of them lay in its first run or in its second one.
uint64_t early_codes, early_scales_biases, late_codes, late_scales_biases;
uint turn; // the first unit of the second one

// Adds up `values` of x over the lanes of a team, and leaves them to the workgroup at `at`. Each step halves what a lane has, as long as it
// has several. Indices are literals: an array of registers that is indexed otherwise becomes a chain of comparisons.
#define FOLD(n) \
    if (left > n && m > 0u) { \
        bool up = (thread_lane() & m) != 0u; \
        [[unroll]] for (uint i = 0; i < n; i++) \
            x[i] = (up ? x[n + i] : x[i]) + subgroupShuffleXor(up ? x[i] : x[n + i], m); \
        if (up) row += n; \
        left = n; \
        m >>= 1; \
    }
void leave(inout float x[2u * MAX_RUN], const uint values, uint at) {
    uint left = values, m = TOGETHER / 2u, row = 0u;
    FOLD(8u)
    FOLD(4u)
    FOLD(2u)
    FOLD(1u)
    const uint repeats = MAX(TOGETHER / values, 1u); // lanes that get the same sum
    [[unroll]] for (uint mask = 8u; mask > 0u; mask >>= 1)
        if (mask < repeats) x[0] += subgroupShuffleXor(x[0], mask);
    at = (at + row) * PIECES + thread_lane() / TOGETHER;
    if (thread_lane() % repeats == 0u) {
        [[unroll]] for (uint i = 0; i < 2u * MAX_RUN; i++)
            if (i < left) sums[at + i * PIECES] = x[i];
    }
}

#define PRODUCT qkv
#define PRODUCT_FORMAT QKV_FORMAT
#define DEPTH HIDDEN
#define ROWS QKV_MOST
#define OWN_ROWS QKV_ROWS
#define RUN QKV_RUN
void qkv_place(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    scales_at = workgroup() * OWN_ROWS + row;
    bool is_q = scales_at < Q_ROWS, is_k = scales_at < Q_ROWS + K_ROWS;
    codes = is_q ? ADDRESS(Q) : is_k ? ADDRESS(K) : ADDRESS(V);
    at = scales_at - (is_q ? 0u : is_k ? Q_ROWS : Q_ROWS + K_ROWS);
}
uint qkv_matrix(uint run) {
    uint row = workgroup() * OWN_ROWS + run * RUN;
    return row < Q_ROWS ? 0u : row < Q_ROWS + K_ROWS ? 1u : 2u;
}
uint qkv_first(uint run) { return 0u; }
uint64_t qkv_scales_biases() { return ADDRESS(QKV_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT o
#define PRODUCT_FORMAT O_FORMAT
#define DEPTH ALL_Q
#define ROWS O_ROWS
#define RUN O_RUN
void o_place(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    codes = ADDRESS(O);
    at = scales_at = residual_row(row, RUN);
}
uint o_matrix(uint run) { return 0u; }
uint o_first(uint run) { return 0u; }
uint64_t o_scales_biases() { return ADDRESS(O_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT router
#define PRODUCT_FORMAT ROUTER_FORMAT
#define DEPTH HIDDEN
#define ROWS ROUTER_ROWS
#define RUN ROUTER_RUN
void router_place(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    codes = ADDRESS(ROUTER);
    at = scales_at = workgroup() * ROWS + row;
    if (SHARED == 0u || workgroup() != GRID) return;
    codes = ADDRESS(SHARED_ROUTER);
    at = 0u;
    scales_at = EXPERTS;
}
uint router_matrix(uint run) { return 0u; }
uint router_first(uint run) { return 0u; }
uint64_t router_scales_biases() { return ADDRESS(ROUTER_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT gate_up
#define PRODUCT_FORMAT GATE_UP_FORMAT
#define DEPTH HIDDEN
#define ROWS GATE_UP_ROWS
#define RUN GATE_UP_RUN
void gate_up_place(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    bool is_gate = row < ROWS / 2u;
    codes = is_gate ? ADDRESS(GATE) : ADDRESS(UP);
    at = stacked(workgroup() * (ROWS / 2u) + row - (is_gate ? 0u : ROWS / 2u), EXPERT_SIZE);
    scales_at = at + (is_gate ? 0u : STACKED * EXPERT_SIZE);
    uint of_all = workgroup() * (ROWS / 2u) + row - (is_gate ? 0u : ROWS / 2u);
    if (SHARED == 0u || of_all < CHOSEN * EXPERT_SIZE) return;
    codes = is_gate ? ADDRESS(SHARED_GATE) : ADDRESS(SHARED_UP);
    at = of_all - CHOSEN * EXPERT_SIZE;
    scales_at = at + (2u * STACKED + (is_gate ? 0u : 1u)) * EXPERT_SIZE;
}
uint gate_up_matrix(uint run) { return run * RUN < ROWS / 2u ? 0u : 1u; }
uint gate_up_first(uint run) { return 0u; }
uint64_t gate_up_scales_biases() { return ADDRESS(GATE_UP_SCALES_BIASES); }
#include "product.glsl"

#define PRODUCT down
#define PRODUCT_FORMAT DOWN_FORMAT
#define DEPTH DOWN_DEPTH
#define ROW_DEPTH EXPERT_SIZE
#define ROWS DOWN_ROWS
#define RUN DOWN_RUN
void down_place(uint row, out uint64_t codes, out uint at, out uint scales_at) {
    codes = ADDRESS(DOWN) + down_part * (DOWN_DEPTH / 32u * (CODE_BITS(DOWN_FORMAT) * 4u));
    at = residual_row(row, RUN);
    if (EXPERTS != 0u) at = stacked(row / O_ROWS * HIDDEN + residual_row(row % O_ROWS, RUN), HIDDEN);
    scales_at = at;
    if (SHARED == 0u || row < CHOSEN * O_ROWS) return;
    codes = ADDRESS(SHARED_DOWN);
    at = residual_row(row - CHOSEN * O_ROWS, RUN);
    scales_at = STACKED * HIDDEN + at;
}
uint down_matrix(uint run) { return 0u; }
uint down_first(uint run) { return EXPERTS == 0u ? 0u : min(run * RUN / O_ROWS, SLOTS - 1u) * (EXPERT_SIZE / 32u); }
uint64_t down_scales_biases() {
    const uint part_words = DOWN_DEPTH / GROUP_SIZE(DOWN_FORMAT) * GROUP_WORDS(DOWN_FORMAT, DOWN_RUN);
    return ADDRESS(DOWN_SCALES_BIASES) + down_part * (part_words * 4u);
}
#include "product.glsl"
