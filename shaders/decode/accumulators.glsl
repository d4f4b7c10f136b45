// Accumulators of the decode kernels: what one is, how they are polled, added to, and zeroed once they were read. decode.glsl says
// what kinds there are.

#define ACCUMULATOR_BYTES 8u
#define Accumulator uvec2

uint64_t state_before(uint layer) { return state() + (AT_BEFORE + layer % RESIDUAL_RING * BYTES_BEFORE); }
uint64_t state_after(uint layer) { return state() + (AT_AFTER + layer % LAYER_RING * BYTES_AFTER); }
uint64_t state_squares(uint layer) { return state() + (layer_at(layer) + AT_SQUARES); }
// 8 features of the new key as [first or partner][4], and of the new value, for each workgroup.
uint64_t state_new(uint layer) { return state() + (layer_at(layer) + AT_FRESH); }
uint64_t state_scores(uint layer) { return state() + (layer_at(layer) + AT_SCORES); }

// An initial residual value that is too large becomes MAX_ACCUMULATOR, which its first reader reports as lost.
const float MAX_ACCUMULATOR = ACCUMULATORS == 1 ? 67108864.0 : 1073741824.0; // twice what LOST_BITS are
bool fits(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < LOST_BITS; }

#if ACCUMULATORS == 0 || ACCUMULATORS == 2
// In 2^-24: scaling by a power of two is exact. Wholes and fractions are converted apart, since conversions of 64 bits are slow.
#define ACCUMULATOR_STEPS 16777216.0
void accumulator_add(uint64_t sums, uint i, Accumulator s) { atomicAdd(U64s(sums).v[i], pack64(s)); }
Accumulator accumulator_plus(Accumulator a, Accumulator b) { return unpack32(pack64(a) + pack64(b)); }
int64_t steps_of(float x, uint spare) { // above `spare` bits
    float whole = roundEven(x);
    return (int64_t(int(whole)) << (24u + spare)) + (int64_t(int(roundEven((x - whole) * ACCUMULATOR_STEPS))) << spare);
}
#endif
#if ACCUMULATORS == 0
float accumulator_value(Accumulator s) { return fma(float(s.x & 0xffffffu), 1.0 / ACCUMULATOR_STEPS, float(int(s.y << 8 | s.x >> 24))); }
Accumulator accumulator_as(float x) { return unpack32(uint64_t(steps_of(x, 0u))); }
#elif ACCUMULATORS == 2
float accumulator_value(Accumulator s) { return fma(float(s.x >> 8), 1.0 / ACCUMULATOR_STEPS, float(int(s.y))); }
Accumulator accumulator_as(float x) { return unpack32(uint64_t(steps_of(x, 8u)) + 1ul); }
#elif ACCUMULATORS == 1
// Sixteenths in the high word, the rest in 2^-24 in the low one: room for 2,048 additions.
float accumulator_value(Accumulator s) { return fma(float(int(s.x)), 1.0 / 16777216.0, float(int(s.y)) * 0.0625); }
Accumulator accumulator_as(float x) {
    float whole = roundEven(x * 16.0);
    return uvec2(int(roundEven((x - whole * 0.0625) * 16777216.0)), int(whole));
}
Accumulator accumulator_plus(Accumulator a, Accumulator b) { return a + b; }
void accumulator_add(uint64_t sums, uint i, Accumulator s) {
    atomicAdd(U32s(sums).v[2u * i], s.x);
    atomicAdd(U32s(sums).v[2u * i + 1u], s.y);
}
#endif
Accumulator accumulator_load(uint64_t sums, uint i) { return Shared2(sums).v[i]; }
void accumulator_store(uint64_t sums, uint i, Accumulator s) { Shared2(sums).v[i] = s; }
#define ZERO_ACCUMULATOR uvec2(0)

// A term of a sum.
Accumulator accumulator_of(float x) {
    note_lost(x);
    return accumulator_as(x);
}

// The first term of a residual's sum.
Accumulator accumulator_open(float x) {
    if (!fits(x)) x = MAX_ACCUMULATOR;
    return accumulator_as(x);
}

// Mean squares of q and k are kept in finer steps than the residual.
#define SQUARE_STEPS 64.0

// ---- waiting ------------------------------------------------------------------------------------------------------------

#if ACCUMULATORS == 2
const uint ADDITIONS = WORKGROUPS; // to a residual
// Additions still to come, modulo 256.
uint accumulator_missing(Accumulator s, uint additions) { return (s.x ^ additions) & 255u; }
// A sum as a part of another, and a value as a complete sum.
Accumulator accumulator_carried(Accumulator s) { return uvec2(s.x & ~255u, s.y); }
Accumulator accumulator_whole(float x) { return accumulator_plus(accumulator_open(x), uvec2(ADDITIONS - 1u, 0)); }
#else
Accumulator accumulator_carried(Accumulator s) { return s; }
Accumulator accumulator_whole(float x) { return accumulator_open(x); }
#endif

// Where sum i of a residual lies: every other 64 bytes are empty, since additions to the same cache line wait for each other.
const uint ACCUMULATOR_RUN = 64u / ACCUMULATOR_BYTES;
uint place(uint i) { return i / ACCUMULATOR_RUN * (2u * ACCUMULATOR_RUN) + i % ACCUMULATOR_RUN; }

// Row i of the four that a thread of a projection makes: 32 threads add to neighbouring accumulators at once. The projections' weights
// lie in that order.
uint row_of(uint quad, uint i) { return (quad >> 5) * 128u + i * 32u + (quad & 31u); }

// The residual's sum over its copies.
Accumulator residual_accumulator(uint64_t residual, uint row) {
    Accumulator s = accumulator_load(residual, place(row));
    [[unroll]] for (uint c = 1; c < COPIES; c++)
        s = accumulator_plus(s, accumulator_load(residual, place(c * HIDDEN + row)));
    return s;
}

// Features 4 * quad to 4 * quad + 3, once they are complete.
vec4 residual_quad(uint64_t residual, uint quad) {
    Accumulator s0, s1, s2, s3;
#if defined(POLL) && ACCUMULATORS == 2
    // 32 threads poll one of theirs first: polls and additions contend for the same cache lines.
    uint spins = 0u, row = min((quad & ~31u) * 4u + (gl_WorkGroupID.x * 4u & 127u), HIDDEN - 1u);
    while (accumulator_missing(residual_accumulator(residual, row), ADDITIONS) != 0u && !give_up(spins));
    spins = 0u;
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
            s0 = accumulator_plus(s0, a.xy);
            s1 = accumulator_plus(s1, a.zw);
            s2 = accumulator_plus(s2, b.xy);
            s3 = accumulator_plus(s3, b.zw);
        }
#if defined(POLL) && ACCUMULATORS == 2
        uint missing = accumulator_missing(s0, ADDITIONS) | accumulator_missing(s1, ADDITIONS) | accumulator_missing(s2, ADDITIONS) |
                       accumulator_missing(s3, ADDITIONS);
        if (missing == 0u || give_up(spins)) break;
    }
#endif
    return vec4(accumulator_value(s0), accumulator_value(s1), accumulator_value(s2), accumulator_value(s3));
}

// Zeroes this workgroup's share of the residual.
void residual_clear(uint64_t residual) {
    const uint share = (HIDDEN * COPIES + WORKGROUPS - 1u) / WORKGROUPS;
    uint first = gl_WorkGroupID.x * share;
    if (share <= THREADS) {
        if (thread() < share && first + thread() < HIDDEN * COPIES) accumulator_store(residual, place(first + thread()), ZERO_ACCUMULATOR);
        return;
    }
    [[dont_unroll]] for (uint i = thread(); i < share; i += THREADS)
        if (first + i < HIDDEN * COPIES) accumulator_store(residual, place(first + i), ZERO_ACCUMULATOR);
}

// The residual that this workgroup carries over to the next accumulators: each quad has one workgroup that does. It is
// to be asked for early, since it is needed before the additions.
struct Carry {
    Accumulator s[4 * QUAD_ROUNDS];
};

void load_carry(uint64_t from, inout Carry c) {
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        [[unroll]] for (uint i = 0; i < 4u; i++)
            c.s[4u * n + i] = ZERO_ACCUMULATOR;
        if (quad < QUADS && quad % WORKGROUPS == gl_WorkGroupID.x) [[unroll]]
            for (uint i = 0; i < 4u; i++) c.s[4u * n + i] = accumulator_carried(residual_accumulator(from, row_of(quad, i)));
    }
}

// Adds rows of a product, and the carried part, to the residual.
void residual_add(uint64_t to, vec4 rows[QUAD_ROUNDS], Carry c) {
    uint copy = gl_WorkGroupID.x % COPIES * HIDDEN;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        if (quad < QUADS) [[unroll]]
            for (uint i = 0; i < 4u; i++)
                accumulator_add(to, place(copy + row_of(quad, i)), accumulator_plus(accumulator_of(rows[n][i]), c.s[4u * n + i]));
    }
}
