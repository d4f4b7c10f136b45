// The sums that the decode kernels meet in: what a sum is, where those of a token lie, how they are waited for, added to, and zeroed
// behind those who read them. decode.glsl says what kinds there are.

// ---- sums ---------------------------------------------------------------------------------------------------------------

#if SUMS == 2
#define SUM_BYTES 4u
#define Sum float
#else
#define SUM_BYTES 8u
#define Sum uvec2
#endif

// The state of one token, in this order: the position, a counter of the head's workgroups and their best, whether a number was lost,
// the cosine and sine of
// each pair of features and the turns that a position adds to it, the residual before each layer, the residual after attention, and
// for each layer sums of squares, the new key and value, scores. Layers take turns with as many places as there are.
// schedule/decoder/emit_decode.ts computes the same size.
const uint BEFORE_TURNS = SUMS == 3 ? 4u : 2u;
const uint TURNS = SUMS == 3 ? 4u : 1u;
const uint RESIDUAL_BYTES = HIDDEN * COPIES * SUM_BYTES * 2u; // see place()
const uint HEADER_BYTES = 256u + HEAD_DIM * 8u;
const uint SQUARES = KV_HEADS * (HEADS + 1u);
const uint SQUARE_BYTES = (SQUARES * 8u + 255u) / 256u * 256u;
const uint NEW_BYTES = KV_HEADS * HEAD_DIM * 8u;
// Offsets in 32 bits: a state has less than 4 GB.
uint layer_bytes() { return SQUARE_BYTES + NEW_BYTES + KV_HEADS * PAIRS * 8u * pc.p.capacity; }
uint layer_at(uint layer) { return HEADER_BYTES + (BEFORE_TURNS + TURNS) * RESIDUAL_BYTES + layer % TURNS * layer_bytes(); }
uint64_t state() { return pc.address[0] + uint64_t(SEQUENCE) * layer_at(0u) + uint64_t(SEQUENCE) * (TURNS * layer_bytes()); }
uint64_t state_position() { return state(); }
uint64_t state_counter() { return state() + 4u; }
uint64_t state_best() { return state() + 8u; }
uint64_t state_lost() { return state() + 16u; }
uint64_t state_turns() { return state() + 256u; }
uint64_t state_frequencies() { return state() + (256u + HEAD_DIM * 4u); }
uint64_t state_before(uint layer) { return state() + (HEADER_BYTES + layer % BEFORE_TURNS * RESIDUAL_BYTES); }
uint64_t state_after(uint layer) { return state() + (HEADER_BYTES + (BEFORE_TURNS + layer % TURNS) * RESIDUAL_BYTES); }
uint64_t state_squares(uint layer) { return state() + layer_at(layer); }

// The sequence's part of a cache.
#define CACHE(which) (ADDRESS(which) + uint64_t(SEQUENCE) * (uint64_t(KV_HEADS * HEAD_DIM * (DTYPE_KV == DTYPE_F32 ? 4u : 2u)) * pc.p.capacity))
// 8 features of the new key as [first or partner][4], and of the new value, for each workgroup.
uint64_t state_new(uint layer) { return state() + (layer_at(layer) + SQUARE_BYTES); }
uint64_t state_scores(uint layer) { return state() + (layer_at(layer) + SQUARE_BYTES + NEW_BYTES); }

#ifdef POLL
uint the_position;
uint position() { return the_position; }
#else
uint position() { return U32s(state_position()).v[0]; }
#endif

// Integers cannot hold NaN, infinities and what is as large: the state says that such a number was lost, and the head gives NaN. A
// residual that opens with one holds MOST_SUM instead, which whoever reads it first tells. Bits are compared, since compilers may
// assume that NaN does not occur.
#if SUMS == 2
void note_lost(float x) {}
void tell_lost() {}
#else
const float MOST_SUM = SUMS == 1 ? 67108864.0 : 1073741824.0;
const uint MOST_BITS = SUMS == 1 ? 0x4c000000u : 0x4e000000u; // of half of it
bool fits(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < MOST_BITS; }

// The largest magnitude that this thread came across, told once at the end of a kernel: a look at each number, with a store behind
// it, would keep the compiler from moving what is around it.
uint noted_bits = 0u;
void note_lost(float x) { noted_bits = max(noted_bits, floatBitsToUint(x) & 0x7fffffffu); }
void tell_lost() { if (noted_bits >= MOST_BITS) U32s(state_lost()).v[0] = 1u; }
#endif

#if SUMS == 0 || SUMS == 3
// In 2^-24: scaling by a power of two is exact. Wholes and fractions are converted apart, since conversions of 64 bits are slow.
#define SUM_STEPS 16777216.0
void sum_add(uint64_t sums, uint i, Sum s) { atomicAdd(U64s(sums).v[i], pack64(s)); }
Sum sum_plus(Sum a, Sum b) { return unpack32(pack64(a) + pack64(b)); }
int64_t steps_of(float x, uint spare) { // above `spare` bits
    float whole = roundEven(x);
    return (int64_t(int(whole)) << (24u + spare)) + (int64_t(int(roundEven((x - whole) * SUM_STEPS))) << spare);
}
#endif
#if SUMS == 0
float sum_value(Sum s) { return fma(float(s.x & 0xffffffu), 1.0 / SUM_STEPS, float(int(s.y << 8 | s.x >> 24))); }
Sum sum_as(float x) { return unpack32(uint64_t(steps_of(x, 0u))); }
#elif SUMS == 3
float sum_value(Sum s) { return fma(float(s.x >> 8), 1.0 / SUM_STEPS, float(int(s.y))); }
Sum sum_as(float x) { return unpack32(uint64_t(steps_of(x, 8u)) + 1ul); }
#elif SUMS == 1
// Sixteenths in the high word, what is left in 2^-24 in the low one: room for 2,048 additions.
float sum_value(Sum s) { return fma(float(int(s.x)), 1.0 / 16777216.0, float(int(s.y)) * 0.0625); }
Sum sum_as(float x) {
    float whole = roundEven(x * 16.0);
    return uvec2(int(roundEven((x - whole * 0.0625) * 16777216.0)), int(whole));
}
Sum sum_plus(Sum a, Sum b) { return a + b; }
void sum_add(uint64_t sums, uint i, Sum s) {
    atomicAdd(U32s(sums).v[2u * i], s.x);
    atomicAdd(U32s(sums).v[2u * i + 1u], s.y);
}
#else
float sum_value(Sum s) { return s; }
Sum sum_as(float x) { return x; }
Sum sum_plus(Sum a, Sum b) { return a + b; }
void sum_add(uint64_t sums, uint i, Sum s) { atomicAdd(F32s(sums).v[i], s); }
#endif
#if SUMS == 2
Sum sum_load(uint64_t sums, uint i) { return F32s(sums).v[i]; }
void sum_store(uint64_t sums, uint i, Sum s) { F32s(sums).v[i] = s; }
#define NO_SUM 0.0
#else
Sum sum_load(uint64_t sums, uint i) { return Shared2(sums).v[i]; }
void sum_store(uint64_t sums, uint i, Sum s) { Shared2(sums).v[i] = s; }
#define NO_SUM uvec2(0)
#endif

// What is added to a sum.
Sum sum_of(float x) {
    note_lost(x);
    return sum_as(x);
}

// What a sum of a residual opens with.
Sum sum_open(float x) {
#if SUMS != 2
    if (!fits(x)) x = MOST_SUM;
#endif
    return sum_as(x);
}

// Mean squares of q and k are kept in finer steps than the residual.
#define SQUARE_STEPS 64.0

// ---- waiting ------------------------------------------------------------------------------------------------------------

#if SUMS == 3
const uint ADDITIONS = WORKGROUPS; // to a residual
// Additions still to come, modulo 256.
uint sum_missing(Sum s, uint additions) { return (s.x ^ additions) & 255u; }
// A sum as a part of another, and a value as a complete sum.
Sum sum_carried(Sum s) { return uvec2(s.x & ~255u, s.y); }
Sum sum_whole(float x) { return sum_plus(sum_open(x), uvec2(ADDITIONS - 1u, 0)); }
#else
Sum sum_carried(Sum s) { return s; }
Sum sum_whole(float x) { return sum_open(x); }
#endif

#ifdef POLL
// Counts a look that came too early. After too many of them something is wrong: the status says so, and everybody leaves.
bool give_up(inout uint looks) {
    if (++looks >= pc.p.patience) Shared1(pc.address[STATUS]).v[0] = 1u;
    else if ((looks & 63u) != 0u) return false;
    return Shared1(pc.address[STATUS]).v[0] != 0u;
}
#endif

// Where sum i of a residual lies: every other 64 bytes are empty, since additions to the same cache line wait for each other.
const uint SUM_RUN = 64u / SUM_BYTES;
uint place(uint i) { return i / SUM_RUN * (2u * SUM_RUN) + i % SUM_RUN; }

// Row i of the four that a thread of a projection makes: 32 threads add to neighbouring sums at once. The projections' weights
// lie in that order.
uint row_of(uint quad, uint i) { return (quad >> 5) * 128u + i * 32u + (quad & 31u); }

// The residual's sum over its copies.
Sum residual_sum(uint64_t residual, uint row) {
    Sum s = sum_load(residual, place(row));
    [[unroll]] for (uint c = 1; c < COPIES; c++) s = sum_plus(s, sum_load(residual, place(c * HIDDEN + row)));
    return s;
}

// Features 4 * quad to 4 * quad + 3, once they are complete.
vec4 residual_quad(uint64_t residual, uint quad) {
#if SUMS == 2
    vec4 s = F32x4s(residual).v[place(4u * quad) / 4u];
    [[unroll]] for (uint c = 1; c < COPIES; c++) s += F32x4s(residual).v[place(c * HIDDEN + 4u * quad) / 4u];
    return s;
#else
    Sum s0, s1, s2, s3;
#if defined(POLL) && SUMS == 3
    // 32 threads look at one of their sums first: looks and additions meet in the same cache lines.
    uint looks = 0u, row = min((quad & ~31u) * 4u + (gl_WorkGroupID.x * 4u & 127u), HIDDEN - 1u);
    while (sum_missing(residual_sum(residual, row), ADDITIONS) != 0u && !give_up(looks));
    looks = 0u;
    for (;;) {
#endif
    uint at = place(4u * quad) / 2u;
    uvec4 a = Shared4(residual).v[at], b = Shared4(residual).v[at + 1u];
    s0 = a.xy;
    s1 = a.zw;
    s2 = b.xy;
    s3 = b.zw;
    [[unroll]] for (uint c = 1; c < COPIES; c++) {
        at = place(c * HIDDEN + 4u * quad) / 2u;
        a = Shared4(residual).v[at];
        b = Shared4(residual).v[at + 1u];
        s0 = sum_plus(s0, a.xy);
        s1 = sum_plus(s1, a.zw);
        s2 = sum_plus(s2, b.xy);
        s3 = sum_plus(s3, b.zw);
    }
#if defined(POLL) && SUMS == 3
        uint missing = sum_missing(s0, ADDITIONS) | sum_missing(s1, ADDITIONS) | sum_missing(s2, ADDITIONS) | sum_missing(s3, ADDITIONS);
        if (missing == 0u || give_up(looks)) break;
    }
#endif
    return vec4(sum_value(s0), sum_value(s1), sum_value(s2), sum_value(s3));
#endif
}

// Zeroes this workgroup's share of the residual.
void residual_clear(uint64_t residual) {
    const uint share = (HIDDEN * COPIES + WORKGROUPS - 1u) / WORKGROUPS;
    uint first = gl_WorkGroupID.x * share;
    if (share <= THREADS) {
        if (thread() < share && first + thread() < HIDDEN * COPIES) sum_store(residual, place(first + thread()), NO_SUM);
        return;
    }
    [[dont_unroll]] for (uint i = thread(); i < share; i += THREADS)
        if (first + i < HIDDEN * COPIES) sum_store(residual, place(first + i), NO_SUM);
}

// The residual that this workgroup carries over to the next sums: each quad has one workgroup that does. To be asked for
// early, since it is needed in front of the additions.
struct Carry { Sum s[4 * QUAD_ROUNDS]; };

void load_carry(uint64_t from, inout Carry c) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        [[unroll]] for (uint i = 0; i < 4u; i++) c.s[4u * n + i] = NO_SUM;
        if (quad < QUADS && quad % WORKGROUPS == gl_WorkGroupID.x)
            [[unroll]] for (uint i = 0; i < 4u; i++) c.s[4u * n + i] = sum_carried(residual_sum(from, row_of(quad, i)));
    }
}

// Adds rows of a product, and what is carried, to the residual.
void residual_add(uint64_t to, vec4 rows[QUAD_ROUNDS], Carry c) {
    uint copy = gl_WorkGroupID.x % COPIES * HIDDEN;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        if (quad < QUADS)
            [[unroll]] for (uint i = 0; i < 4u; i++) sum_add(to, place(copy + row_of(quad, i)), sum_plus(sum_of(rows[n][i]), c.s[4u * n + i]));
    }
}

// ---- scores: two heads to 8 bytes, in 2^-12 or float32 ------------------------------------------------------------------

// As many parts as there are slices, of at most this much, stay within the bits of a score: 32, or 29 beside a count of 6.
#if SUMS == 3
#define SCORE_LIMIT (65000.0 / float(SLICES))
#else
#define SCORE_LIMIT (520000.0 / float(SLICES))
#endif

uint64_t scores_of(uint layer, uint kv_head, uint pair) {
    return state() + (layer_at(layer) + SQUARE_BYTES + NEW_BYTES + (kv_head * PAIRS + pair) * pc.p.capacity * 8u);
}

void score_add(uint64_t scores, uint at, vec2 s) {
#if SUMS == 2
    atomicAdd(F32s(scores).v[2u * at], s.x);
    atomicAdd(F32s(scores).v[2u * at + 1u], s.y);
#else
    note_lost(s.x);
    note_lost(s.y);
    vec2 steps = clamp(s, -SCORE_LIMIT, SCORE_LIMIT) * 4096.0;
    ivec2 k = ivec2(steps + mix(vec2(0.5), vec2(-0.5), lessThan(steps, vec2(0))));
#if SUMS == 0
    atomicAdd(U64s(scores).v[at], uint64_t((int64_t(k.y) << 32) + int64_t(k.x)));
#elif SUMS == 3
    atomicAdd(U64s(scores).v[at], uint64_t((int64_t(k.y) << 35) + (int64_t(k.x) << 6) + 1l));
#ifdef POLL
    // Larger scores need the 32 bits of SUMS 0.
    if (any(greaterThan(abs(s), vec2(SCORE_LIMIT)))) Shared1(pc.address[STATUS]).v[0] = 2u;
#endif
#else
    atomicAdd(U32s(scores).v[2u * at], uint(k.x));
    atomicAdd(U32s(scores).v[2u * at + 1u], uint(k.y));
#endif
#endif
}

vec2 score_value(uvec2 w) {
#if SUMS == 2
    return uintBitsToFloat(w);
#elif SUMS == 0
    return vec2(int(w.x), int(w.y) + int(w.x >> 31)) * (1.0 / 4096.0);
#elif SUMS == 3
    int x = int((w.y << 29) | ((w.x >> 6) << 3)) >> 3;
    return vec2(x, (int(w.y) >> 3) + int(uint(x) >> 31)) * (1.0 / 4096.0);
#else
    return vec2(int(w.x), int(w.y)) * (1.0 / 4096.0);
#endif
}

#ifdef POLL
bool score_complete(uvec2 w) { return (w.x & 63u) == SLICES; }
#endif

// Zeroes this workgroup's share of what nobody reads any more when the third phase of a layer is past its own sums.
void clear_behind(uint layer, uint now) {
#if SUMS == 3
    if (layer > 0u) {
        residual_clear(state_before(layer - 1u));
        residual_clear(state_after(layer - 1u));
    }
#else
    residual_clear(state_before(layer));
#endif
    if (slice() == 0u && thread() <= HEADS) sum_store(state_squares(layer), kv_head() * (HEADS + 1u) + thread(), NO_SUM);
    [[dont_unroll]] for (uint pair = 0; pair < PAIRS; pair++)
        [[dont_unroll]] for (uint p = slice() * THREADS + thread(); p <= now; p += SLICES * THREADS)
            Shared2(scores_of(layer, kv_head(), pair)).v[p] = uvec2(0);
}
