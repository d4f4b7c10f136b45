// The common part of the decode kernels: one token through a whole decoder in three dispatches a layer.
//
//   qkv     norm, q, k and v of a slice of a head with their biases, rotary positions, the slice's part of every score
//   attention  softmax, the slice of the values, its columns of the output projection
//   mlp     norm, some gate and up rows, activation(gate) * up, their columns of the down projection
//
// A workgroup of qkv and attention is (key/value head, slice): 8 of its HEAD_DIM features. Its results are partial sums
// that all workgroups add to accumulators with atomics, so no dispatch waits for another reduction. There are
// accumulators for the residual stream (HIDDEN of them), the scores, and the sums of squares that normalise q and k.
// ACCUMULATORS says what one is:
//
//   0  64-bit fixed point, exact in any order      1  the same in two words of 32 bits, for devices without 64-bit atomics
//   2  as 0 with equal results, and the low bits count the additions: a reader sees whether it is complete
//   3  none: the layers are those of shaders/decode_gemv, where one workgroup makes a row, and the residual is float32
//
// Sequences that are decoded together have contiguous states, one each, and a part of every cache. A dispatch
// has the same number of workgroups for each sequence. Workgroups with the same task read the same weights, which come
// from the cache except for the first time.
//
// With POLL (and ACCUMULATORS 2) the phases of many layers run in one dispatch, decode/layers.comp. A workgroup then
// spins until the accumulators that it reads are complete. Memory that workgroups exchange is device-coherent, and each layer
// has its own, four layers in a ring. Without POLL a dispatch is one phase of one layer, and pipeline barriers stand
// between them.
//
// Products take activations in 16 bits. Blocks of 32 (or 8) share a scale, each value is high * 256 + low, and both
// halves go through the 4x8-bit integer dot product. Weights are MLX's codes of 4 or 8 BITS. A word of 4-bit codes
// masked by 0x0f0f0f0f holds the even ones of 8 features. Shifted by 4 first, it holds the odd ones. So activations
// for 4-bit codes lie in shared memory in that order. Activations for 8-bit codes lie in their natural order, and
// products take the codes less 128, which the bias gives back. Weights of 16 bits are numbers of DTYPE_W, without
// scales: they are multiplied by the same activations as floats. Each product has a format, see include/formats.glsl.
//
// Threads work in lanes of 32: through shuffles as far as the SUBGROUP reaches, beyond it through shared memory.

#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_spirv_intrinsics : require
#if ACCUMULATORS != 1
#extension GL_EXT_shader_atomic_int64 : require
#endif
#ifdef POLL
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#define COHERENT volatile devicecoherent
#else
#define COHERENT
#ifndef PUSH
#define PUSH DecodePush
#endif
#define LAYER pc.p.layer
#define ADDRESS(which) pc.address[which]
#endif
#include "include/common.glsl"
#include "include/kv_codes.glsl"

layout(constant_id = 1) const uint HIDDEN = 1024;
layout(constant_id = 2) const uint INTERMEDIATE = 3072;
layout(constant_id = 3) const uint KV_HEADS = 8;
layout(constant_id = 4) const uint HEADS = 2; // query heads to a key/value head
layout(constant_id = 5) const uint HEAD_DIM = 128;
layout(constant_id = 6) const uint END_FORMATS = 0x1919u; // of the head and the embedding
layout(constant_id = 7) const uint DTYPE_W = DTYPE_BF16;  // scales, biases, norm weights
layout(constant_id = 8) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 9) const uint COPIES = 2;             // of the residual: fewer workgroups to an address
layout(constant_id = 10) const uint SUBGROUP = 32;         // threads whose lanes are known to be neighbours, at most 32
layout(constant_id = 11) const uint UNROLL = 1;            // positions that a thread has in flight
layout(constant_id = 12) const uint ROUNDS = 1;            // 1: those are all there can be
layout(constant_id = 13) const uint FORMATS = 0x11111111u; // of the products of a layer

// Weights go through references that promise not to be written: loads of them move ahead of all else.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Weights4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Weights2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Weights1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2s { vec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) COHERENT buffer Shared1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) COHERENT buffer Shared2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) COHERENT buffer Shared4 { uvec4 v[]; };
#if ACCUMULATORS != 1
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U64s { uint64_t v[]; };
#endif

// Products that are added to something are written as fma, so that these kernels round alike in all launch modes. A
// compiler may otherwise join x * y + z in one of them and not in another.

float dot_on(vec4 a, vec4 b, float c) { return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, c)))); }

// Signed 4x8-bit dot product.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [ 6018, 6019 ],
                  id = 4450) int dot4(uint a, uint b, spirv_literal int packed_format);

const uint SLICES = HEAD_DIM / 8;
const uint WORKGROUPS = KV_HEADS * SLICES; // of qkv, attention and mlp
const uint QUADS = HIDDEN / 4;             // a thread handles 4 features of the residual at once
const uint QUAD_ROUNDS = (QUADS + THREADS - 1) / THREADS;
const uint CHUNKS = HIDDEN / 32; // a lane handles 32 weights at once
const uint CHUNK_ROUNDS = (CHUNKS + 31) / 32;
const uint WARPS = THREADS / 32;

#include "include/formats.glsl"

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
#ifndef OWN_INVOCATION
uint thread() { return gl_LocalInvocationID.x; }
#endif
uint lane() { return thread() & 31u; }
uint warp() { return thread() >> 5; }

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
    [[unroll]] for (uint m = 1u; m < 32u; m <<= 1)
        x = max(x, int(lane_xor(uint(x), m)));
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
    [[unroll]] for (uint i = 0; i < 4u; i++)
        a[i] = (up ? a[4u + i] : a[i]) + lane_xor(up ? a[i] : a[4u + i], 16u);
    up = (lane() & 8u) != 0u;
    [[unroll]] for (uint i = 0; i < 2u; i++)
        a[i] = (up ? a[2u + i] : a[i]) + lane_xor(up ? a[i] : a[2u + i], 8u);
    up = (lane() & 4u) != 0u;
    float x = (up ? a[1] : a[0]) + lane_xor(up ? a[0] : a[1], 4u);
    x += lane_xor(x, 2u);
    return x + lane_xor(x, 1u);
}

#include "state.glsl"
#if ACCUMULATORS == 3
#include "words.glsl"
#else
#include "accumulators.glsl"
#endif

// ---- values of 16 or 32 bits --------------------------------------------------------------------------------------------

vec2 pair_value(uint w, uint dtype) {
    return dtype == DTYPE_F16 ? unpackHalf2x16(w) : vec2(uintBitsToFloat(w << 16), uintBitsToFloat(w & 0xffff0000u));
}

const bool CODED = DTYPE_KV == DTYPE_U8; // the cache, see include/kv_codes.glsl

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

// A quad of the cache as it is stored: `next` is its second half where elements have 32 bits. Of codes it is a word and an unused one.
const uint QUAD_WORDS = DTYPE_KV == DTYPE_F32 ? 2u : 1u;
uvec2 cached_quad(uint64_t quad, uint i) { return CODED ? uvec2(Weights1(quad).v[0], 0u) : Weights2(quad).v[i]; }
uvec4 cached_eight(uint64_t eight, uint i) {
    if (!CODED) return Weights4(eight).v[i];
    uvec2 words = Weights2(eight).v[0];
    return uvec4(words.x, 0u, words.y, 0u);
}
vec4 quad_value(uvec2 w, uvec2 next) {
    if (CODED) return kv_decode(w.x);
    if (DTYPE_KV == DTYPE_F32) return uintBitsToFloat(uvec4(w, next));
    return vec4(pair_value(w.x, DTYPE_KV), pair_value(w.y, DTYPE_KV));
}

// Where accumulators are polled, all else is loaded before them; without POLL late inputs come after them.
#ifdef POLL
#define IF_BARRIERS(call)
#define IF_POLLING(call) call
#else
#define IF_BARRIERS(call) call
#define IF_POLLING(call)
#endif

// The last position whose first loads are worth their way: without POLL the token's own is not known in time.
#ifdef POLL
#define REACH(now) (now)
#else
#define REACH(now) (pc.p.capacity - 1u)
#endif

const float STEPS_16BIT = 32512.0;
// A float without fraction bits: a number added to it is rounded, and is in its low bits in two's complement.
const float WHOLE = 12582912.0;

// ---- codes --------------------------------------------------------------------------------------------------------------

// Of 32 features of a row, or of 8 features of 4 rows. Only 8 bits need the second half; 16 bits take two of these.
struct Codes32 {
    uvec4 first, second;
};

// Codes of 32 features are contiguous.
Codes32 load_codes(uint64_t codes, uint at, const uint format) {
    Codes32 c;
    c.first = Weights4(codes).v[at * CODE_WORDS(format)];
    c.second = c.first;
    if (CODE_BITS(format) == 8u) c.second = Weights4(codes).v[at * CODE_WORDS(format) + 1u];
    return c;
}

// Block of 8 features of 4 rows of a projection, which lies transposed, [word of features][row].
Codes32 load_columns(uint64_t codes, uint block, uint quad, const uint format) {
    Codes32 c;
    c.first = Weights4(codes).v[block * CODE_WORDS(format) * QUADS + quad];
    c.second = c.first;
    if (CODE_BITS(format) == 8u) c.second = Weights4(codes).v[(block * CODE_WORDS(format) + 1u) * QUADS + quad];
    return c;
}

// Codes of 8 features as signed bytes, 4 to a word, in the order of the activations. They come from one word of 4-bit
// codes or from two words of 8-bit codes. Where some codes are symmetric, those of 4 bits are less 8 and 16-fold.
uvec2 code_bytes(uint first, uint second, const uint format) {
    if (CODE_BITS(format) == 8u) return uvec2(first, second) ^ 0x80808080u;
    if (SYMMETRIC(format) != 0u) return uvec2((first << 4) & 0xf0f0f0f0u, first & 0xf0f0f0f0u) ^ 0x80808080u;
    return uvec2(first & 0x0f0f0f0fu, (first >> 4) & 0x0f0f0f0fu);
}

// Scale and bias of affine codes as code_bytes() gives them.
vec2 scales_biases_value(uint scales_biases, const uint format) {
    vec2 sb = pair_value(scales_biases, DTYPE_W);
    if (CODE_BITS(format) == 8u) return vec2(sb.x, fma(sb.x, 128.0, sb.y));
    return SYMMETRIC(format) != 0u ? vec2(sb.x * 0.0625, fma(sb.x, 8.0, sb.y)) : sb;
}

// Scales of the two groups of 16 of symmetric codes.
vec2 scales_value(uint scales, const uint format) { return pair_value(scales, DTYPE_W) * (CODE_BITS(format) == 8u ? 1.0 : 0.0625); }

// ---- blocks of 8 activations, one to a lane, times their codes of a row ----------------------------------------------------

struct Block {
    uint high[2], low[2];
    float scale, sum;
};
struct Blocks {
    uint high, low;
    float scale, sum;
};

// Lanes from one activation of a word of codes to the next, and from one word to the other.
#define NEXT_BYTE(format) (CODE_BITS(format) == 8u ? 1u : 2u)
#define NEXT_WORD(format) (CODE_BITS(format) == 8u ? 4u : 1u)

// Lanes 8b to 8b + 7 hold block b.
Blocks blocks_make(float x, const uint format) {
    Blocks q;
    float most = abs(x);
    q.sum = x;
    [[unroll]] for (uint m = 1u; m < 8u; m <<= 1) {
        most = max(most, lane_xor(most, m));
        q.sum += lane_xor(q.sum, m);
    }
    most = max(most, 1e-20);
    uint k = floatBitsToUint(fma(x, STEPS_16BIT / most, WHOLE));
    uint shift = 8u * (lane() / NEXT_BYTE(format) & 3u);
    q.low = (k & 255u) << shift;
    q.high = (((k + 128u) >> 8) & 255u) << shift;
    [[unroll]] for (uint m = NEXT_BYTE(format); m < 4u * NEXT_BYTE(format); m <<= 1) {
        q.low |= lane_xor(q.low, m);
        q.high |= lane_xor(q.high, m);
    }
    q.scale = most * (1.0 / STEPS_16BIT);
    return q;
}

Block block_get(Blocks q, uint b, const uint format) {
    Block r;
    r.high[0] = lane_get(q.high, 8u * b);
    r.high[1] = lane_get(q.high, 8u * b + NEXT_WORD(format));
    r.low[0] = lane_get(q.low, 8u * b);
    r.low[1] = lane_get(q.low, 8u * b + NEXT_WORD(format));
    r.scale = lane_get(q.scale, 8u * b);
    r.sum = lane_get(q.sum, 8u * b);
    return r;
}

// `odd` says whether the block is in the second of two groups of 16, which have scales of their own if codes are symmetric.
float block_dot(uvec2 codes, uint scales_biases, Block b, const uint format, bool odd) {
    vec2 sb = scales_biases_value(scales_biases, format);
    if (is_symmetric(format, 0u)) {
        vec2 scales = scales_value(scales_biases, format);
        sb = vec2(odd ? scales.y : scales.x, 0.0);
    }
    int high = dot4(codes.x, b.high[0], 0) + dot4(codes.y, b.high[1], 0);
    int low = dot4(codes.x, b.low[0], 0) + dot4(codes.y, b.low[1], 0);
    return fma(sb.x * b.scale, float(high * 256 + low), sb.y * b.sum);
}
// Codes of block `at` of 8 features of a row.
vec4 columns_dot(Codes32 codes, uvec4 scales_biases, Block b, const uint format, uint at) {
    vec4 sums;
    [[unroll]] for (uint r = 0; r < 4u; r++)
        sums[r] = block_dot(code_bytes(codes.first[r], codes.second[r], format), scales_biases[r], b, format, (at & 2u) != 0u);
    return sums;
}
