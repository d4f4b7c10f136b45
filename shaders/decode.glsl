// What the decode kernels share: one token through a whole decoder in three dispatches a layer.
//
//   qkv     norm, q, k and v of a slice of a head, rotary positions, the slice's part of every score
//   attend  softmax, the slice of the values, its columns of the output projection
//   mlp     norm, some gate and up rows, silu * up, their columns of the down projection
//
// A workgroup of qkv and attend is (key/value head, slice): 8 of its HEAD_DIM features. Its results are parts of sums that
// all workgroups add to with atomics, so no dispatch has to wait for another reduction: the residual stream of HIDDEN sums,
// the scores, the sums of squares that q and k are normalised by. SUMS says what a sum is:
//
//   0  64-bit fixed point, exact in any order      1  the same in two words of 32 bits, for devices without 64-bit atomics
//   2  float32; the order of additions, and so the last bits, may differ from run to run
//   3  as 0 with equal results, and the low bits count the additions: a reader sees whether a sum is complete
//
// Sequences that are decoded together have a state each, one behind the other, and a part of every cache; a dispatch has as many
// workgroups for each of them, and those of one kind read the same weights, which come from the cache but for the first time.
//
// With POLL (and SUMS 3) the phases of many layers run in one dispatch, decode_layers.comp, and a workgroup waits for sums by
// looking at them again and again. What workgroups exchange then goes past the caches, and each layer has sums of its own,
// four layers in a ring. Without POLL a dispatch is one phase of one layer, and pipeline barriers stand between them.
//
// Products take activations in 16 bits: blocks of 32 (or 8) share a scale, each value is high * 256 + low, and both halves
// go through the 4x8-bit integer dot product. Weights are MLX's 4-bit codes, where a word masked by 0x0f0f0f0f holds the
// even ones of 8 features and shifted by 4 the odd ones, so activations lie in shared memory in that order.
//
// Threads work in lanes of 32: through shuffles as far as the SUBGROUP reaches, beyond it through shared memory.

#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_spirv_intrinsics : require
#if SUMS == 0 || SUMS == 3
#extension GL_EXT_shader_atomic_int64 : require
#elif SUMS == 2
#extension GL_EXT_shader_atomic_float : require
#endif
#ifdef POLL
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#define EXCHANGED volatile devicecoherent
#else
#define EXCHANGED
#define PUSH DecodePush
#define LAYER pc.p.layer
#define ADDRESS(which) pc.address[which]
#endif
#include "common.glsl"

layout(constant_id = 1) const uint HIDDEN = 1024;
layout(constant_id = 2) const uint INTERMEDIATE = 3072;
layout(constant_id = 3) const uint KV_HEADS = 8;
layout(constant_id = 4) const uint HEADS = 2; // query heads to a key/value head
layout(constant_id = 5) const uint HEAD_DIM = 128;
layout(constant_id = 6) const uint GROUP = 128;
layout(constant_id = 7) const uint DTYPE_W = DTYPE_BF16; // scales, biases, norm weights
layout(constant_id = 8) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 9) const uint COPIES = 2;           // of the residual sums: fewer workgroups to an address
layout(constant_id = 10) const uint SUBGROUP = 32;       // threads whose lanes are known to be neighbours, at most 32
layout(constant_id = 11) const uint UNROLL = 1;          // positions that a thread has in flight
layout(constant_id = 12) const uint ROUNDS = 1;          // 1: those are all there can be

// Weights go through references that promise not to be written: loads of them move ahead of all else.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Weights4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Weights2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2s { vec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) EXCHANGED buffer Shared1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) EXCHANGED buffer Shared2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) EXCHANGED buffer Shared4 { uvec4 v[]; };
#if SUMS == 0 || SUMS == 3
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U64s { uint64_t v[]; };
#endif

// Products that are added to something are written as fma, so that all forms of these kernels round alike: a compiler may join
// x * y + z or not, differently in each.

float dot_on(vec4 a, vec4 b, float c) { return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, c)))); }

// Signed 4x8-bit dot product.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int dot4(uint a, uint b, spirv_literal int packed_format);

const uint SLICES = HEAD_DIM / 8;
const uint WORKGROUPS = KV_HEADS * SLICES; // of qkv, attend and mlp
const uint QUADS = HIDDEN / 4;             // a thread handles 4 features of the residual at once
const uint QUAD_ROUNDS = (QUADS + THREADS - 1) / THREADS;
const uint CHUNKS = HIDDEN / 32;           // a lane handles 32 weights at once
const uint CHUNK_ROUNDS = (CHUNKS + 31) / 32;
const uint WARPS = THREADS / 32;
const uint PAIRS = (HEADS + 1) / 2;        // scores of two heads share 8 bytes

const uint GROUPS = HIDDEN / GROUP;

// The sequence that a workgroup serves.
#ifndef SEQUENCE
#ifdef POLL
#define SEQUENCE 0u
#else
#define SEQUENCE gl_WorkGroupID.y
#endif
#endif

uint kv_head() { return gl_WorkGroupID.x / SLICES; }
uint slice() { return gl_WorkGroupID.x % SLICES; }
uint thread() { return gl_LocalInvocationID.x; }
uint lane() { return gl_LocalInvocationID.x & 31u; }
uint warp() { return gl_LocalInvocationID.x >> 5; }

// ---- lanes (in uniform control flow) ------------------------------------------------------------------------------------

shared uint exchange[SUBGROUP == 32u ? 1u : THREADS];

uint lane_xor(uint x, uint mask) {
    if (mask < SUBGROUP) return subgroupShuffleXor(x, mask);
    barrier();
    exchange[thread()] = x;
    barrier();
    return exchange[thread() ^ mask];
}
float lane_xor(float x, uint mask) { return uintBitsToFloat(lane_xor(floatBitsToUint(x), mask)); }

// The value of lane n of the same 32.
uint lane_get(uint x, uint n) {
    if (SUBGROUP == 32u) return subgroupShuffle(x, (gl_SubgroupInvocationID & ~31u) | n);
    barrier();
    exchange[thread()] = x;
    barrier();
    return exchange[(thread() & ~31u) | n];
}
float lane_get(float x, uint n) { return uintBitsToFloat(lane_get(floatBitsToUint(x), n)); }

int lane_max(int x) {
    if (SUBGROUP == 32u) return subgroupMax(x);
    [[unroll]] for (uint m = 1u; m < 32u; m <<= 1) x = max(x, int(lane_xor(uint(x), m)));
    return x;
}

// Sums of 4 values over 32 lanes: lane l gets that of value l / 8.
float lane_sum4(float a0, float a1, float a2, float a3) {
    bool up = (lane() & 16u) != 0u;
    a0 = (up ? a2 : a0) + lane_xor(up ? a0 : a2, 16u);
    a1 = (up ? a3 : a1) + lane_xor(up ? a1 : a3, 16u);
    up = (lane() & 8u) != 0u;
    a0 = (up ? a1 : a0) + lane_xor(up ? a0 : a1, 8u);
    a0 += lane_xor(a0, 4u);
    a0 += lane_xor(a0, 2u);
    return a0 + lane_xor(a0, 1u);
}

// Of 8 values: lane l gets that of value l / 4.
float lane_sum8(float a[8]) {
    bool up = (lane() & 16u) != 0u;
    [[unroll]] for (uint i = 0; i < 4u; i++) a[i] = (up ? a[4u + i] : a[i]) + lane_xor(up ? a[i] : a[4u + i], 16u);
    up = (lane() & 8u) != 0u;
    [[unroll]] for (uint i = 0; i < 2u; i++) a[i] = (up ? a[2u + i] : a[i]) + lane_xor(up ? a[i] : a[2u + i], 8u);
    up = (lane() & 4u) != 0u;
    float x = (up ? a[1] : a[0]) + lane_xor(up ? a[0] : a[1], 4u);
    x += lane_xor(x, 2u);
    return x + lane_xor(x, 1u);
}

// ---- sums ---------------------------------------------------------------------------------------------------------------

#if SUMS == 2
#define SUM_BYTES 4u
#define Sum float
#else
#define SUM_BYTES 8u
#define Sum uvec2
#endif

// The state of one token, in this order: the position and a counter of the head's workgroups, the cosine and sine of each pair of
// features and the turns that a position adds to it, the residual before each layer, the residual after attention, and for each
// layer sums of squares, the new key and value, scores. Layers take turns with as many places as there are. schedule/decoder.ts
// computes the same size.
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
Sum sum_of(float x) { return unpack32(uint64_t(steps_of(x, 0u))); }
#elif SUMS == 3
float sum_value(Sum s) { return fma(float(s.x >> 8), 1.0 / SUM_STEPS, float(int(s.y))); }
Sum sum_of(float x) { return unpack32(uint64_t(steps_of(x, 8u)) + 1ul); }
#elif SUMS == 1
// Sixteenths in the high word, what is left in 2^-24 in the low one: room for 2,048 additions.
float sum_value(Sum s) { return fma(float(int(s.x)), 1.0 / 16777216.0, float(int(s.y)) * 0.0625); }
Sum sum_of(float x) {
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
Sum sum_of(float x) { return x; }
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

// Mean squares of q and k are kept in finer steps than the residual.
#define SQUARE_STEPS 64.0

// ---- waiting ------------------------------------------------------------------------------------------------------------

#if SUMS == 3
const uint ADDITIONS = WORKGROUPS; // to a residual
// Additions still to come, modulo 256.
uint sum_missing(Sum s, uint additions) { return (s.x ^ additions) & 255u; }
// A sum as a part of another, and a value as a complete sum.
Sum sum_carried(Sum s) { return uvec2(s.x & ~255u, s.y); }
Sum sum_whole(float x) { return sum_plus(sum_of(x), uvec2(ADDITIONS - 1u, 0)); }
#else
Sum sum_carried(Sum s) { return s; }
Sum sum_whole(float x) { return sum_of(x); }
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
#ifdef POLL
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
#ifdef POLL
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

// ---- values of 16 or 32 bits --------------------------------------------------------------------------------------------

vec2 pair_value(uint w, uint dtype) {
    return dtype == DTYPE_F16 ? unpackHalf2x16(w) : vec2(uintBitsToFloat(w << 16), uintBitsToFloat(w & 0xffff0000u));
}

float rounded_as(float x, uint dtype) {
    if (dtype == DTYPE_F16) return f16_value(f16_bits(x));
    if (dtype == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return x;
}

// Elements 4i to 4i + 3.
vec4 load_quad(uint64_t address, uint i, uint dtype) {
    if (dtype == DTYPE_F32) return uintBitsToFloat(Weights4(address).v[i]);
    uvec2 w = Weights2(address).v[i];
    return vec4(pair_value(w.x, dtype), pair_value(w.y, dtype));
}

// A quad of the cache as it lies there: `next` is its second half where elements have 32 bits.
const uint QUAD_WORDS = DTYPE_KV == DTYPE_F32 ? 2u : 1u;
vec4 quad_value(uvec2 w, uvec2 next) {
    if (DTYPE_KV == DTYPE_F32) return uintBitsToFloat(uvec4(w, next));
    return vec4(pair_value(w.x, DTYPE_KV), pair_value(w.y, DTYPE_KV));
}

// Where sums have to be waited for, all else is asked for before them; without POLL what is needed late comes after them.
#ifdef POLL
#define PLAIN(call)
#define POLLED(call) call
#else
#define PLAIN(call) call
#define POLLED(call)
#endif

// The last position whose first loads are worth their way: without POLL the token's own is not known in time.
#ifdef POLL
#define REACH(now) (now)
#else
#define REACH(now) (pc.p.capacity - 1u)
#endif

const float STEPS_16BIT = 32512.0;
// A float that has no bits behind the point: what is added to it is rounded, and lies in its low bits in two's complement.
const float WHOLE = 12582912.0;

// ---- blocks of 8 activations, one to a lane, times one word of codes a row --------------------------------------------------

struct Block { uint high[2], low[2]; float scale, sum; };
struct Blocks { uint high, low; float scale, sum; };

// Lanes 8b to 8b + 7 hold block b.
Blocks blocks_make(float x) {
    Blocks q;
    float most = abs(x);
    q.sum = x;
    [[unroll]] for (uint m = 1u; m < 8u; m <<= 1) {
        most = max(most, lane_xor(most, m));
        q.sum += lane_xor(q.sum, m);
    }
    most = max(most, 1e-20);
    uint k = floatBitsToUint(fma(x, STEPS_16BIT / most, WHOLE));
    uint shift = 8u * ((lane() & 7u) >> 1);
    q.low = (k & 255u) << shift;
    q.high = (((k + 128u) >> 8) & 255u) << shift;
    [[unroll]] for (uint m = 2u; m < 8u; m <<= 1) {
        q.low |= lane_xor(q.low, m);
        q.high |= lane_xor(q.high, m);
    }
    q.scale = most * (1.0 / STEPS_16BIT);
    return q;
}

Block block_get(Blocks q, uint b) {
    Block r;
    r.high[0] = lane_get(q.high, 8u * b);
    r.high[1] = lane_get(q.high, 8u * b + 1u);
    r.low[0] = lane_get(q.low, 8u * b);
    r.low[1] = lane_get(q.low, 8u * b + 1u);
    r.scale = lane_get(q.scale, 8u * b);
    r.sum = lane_get(q.sum, 8u * b);
    return r;
}

float block_dot(uint codes, uint affine, Block b) {
    vec2 sb = pair_value(affine, DTYPE_W);
    uint even = codes & 0x0f0f0f0fu, odd = (codes >> 4) & 0x0f0f0f0fu;
    int high = dot4(even, b.high[0], 0) + dot4(odd, b.high[1], 0);
    int low = dot4(even, b.low[0], 0) + dot4(odd, b.low[1], 0);
    return fma(sb.x * b.scale, float(high * 256 + low), sb.y * b.sum);
}
vec4 block_dot4(uvec4 codes, uvec4 affine, Block b) {
    return vec4(block_dot(codes.x, affine.x, b), block_dot(codes.y, affine.y, b), block_dot(codes.z, affine.z, b), block_dot(codes.w, affine.w, b));
}
