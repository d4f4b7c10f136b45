// The common part of the batched kernels: a token of each of 2 to 16 sequences goes through a whole decoder. The tokens are
// rows of matrices, so that weights are read once for all of them. The rows may also be chunks: TOKENS consecutive
// tokens of each sequence. The first of them comes after what the cache holds, and each sees those before it. A layer
// has five phases, and every sum is made by one workgroup:
//
//   qkv      norm, columns of q, k and v with their biases
//   attention   norms, if any, and rope angles of a sequence's heads that share a key/value head, softmax, values
//   o        columns of the output projection, added to the residual
//   gate_up  norm, columns of gate and up, activation(gate) * up
//   down     columns of the down projection, added to the residual
//
// Numbers are those of a prompt (coopmat/matmul.comp): activations and weights, dequantized or dense, in float16, sums and the residual in
// float32. Sums have a fixed order, and a sequence's bits do not depend on what lies in the other rows.
//
// The workgroup that adds to the residual also prepares the next norm: its values times the weights, in float16, and sums of their squares. Readers
// multiply those values as they are and their sums by 1 / rms(x), so that no workgroup normalises for itself.
//
// Workgroups exchange values on their own. The lowest bit of each word says in which layer it was written. A reader in
// the dispatch of all layers spins until that bit is right. So there are no counters and no fences, and a warp waits
// for those values only that it multiplies. Nothing is overwritten before all its readers are done, since what takes
// its place comes from what all of them made. The residual itself is read only by the threads that wrote it.
// batch_begin writes what the first layer finds.

#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#ifdef EMULATED
#define ALL_LANES(x) (subgroupMin(uint(x)) != 0u)
#define ANY_LANE(x) (subgroupMax(uint(x)) != 0u)
#else
#extension GL_KHR_shader_subgroup_vote : require
#include "coopmat/coopmat.glsl"
#define ALL_LANES(x) subgroupAll(x)
#define ANY_LANE(x) subgroupAny(x)
#endif
#include "include/common.glsl"

layout(constant_id = 1) const uint HIDDEN = 1024;
layout(constant_id = 2) const uint INTERMEDIATE = 3072;
layout(constant_id = 3) const uint KV_HEADS = 8;
layout(constant_id = 4) const uint HEADS = 2; // query heads to a key/value head, at most 8
layout(constant_id = 5) const uint HEAD_DIM = 128;
layout(constant_id = 6) const uint GROUP = 128;
layout(constant_id = 7) const uint DTYPE_W = DTYPE_BF16; // norm weights, biases and dense weights
layout(constant_id = 8) const uint DTYPE_KV = DTYPE_F16;
layout(constant_id = 9) const uint SEQUENCES = 8; // rows; those of a chunk count as sequences where it makes no difference
layout(constant_id = 10) const uint BITS = 4;     // of a weight: 4, 8, or 16 where weights are dense, in DTYPE_W

#ifndef HYBRID_STATE
const uint GATES = 0u, NET_COLUMNS = 0u; // see hybrid.comp
#endif

// Weights go through references that promise not to be written: loads of them move ahead of all else.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Weights4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Weights2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Weights1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Plain2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) volatile devicecoherent buffer Shared4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) volatile devicecoherent buffer Shared2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) volatile devicecoherent buffer Shared1 { uint v[]; };

const uint WARPS = THREADS / 32u;

#include "generated/batch_state.glsl"

// Warps are 32 neighbouring threads whatever the subgroup is; only four neighbours shuffle. Lane 4r + c has rows r and
// r + 8 of A and of sums, and columns r and r + 8 of B. Along the other side it has 2c, 2c + 1, 2c + 8 and 2c + 9
// (`pairs` in src/schedule/ops/matmul/coopmat.ts).
uint thread() { return gl_LocalInvocationID.x; }
uint lane() { return thread() & 31u; }
uint warp() { return thread() >> 5; }
#ifdef EMULATED
#include "coopmat/emulated.glsl"
#else
#include "coopmat/half_codes.glsl"
uint lane_row() { return lane() >> 2; }
uint lane_column() { return lane() & 3u; }
// Column i of the four that a lane holds.
uint column_of(uint a_lane, uint i) { return 2u * (a_lane & 3u) + (i & 1u) + 8u * (i >> 1); }
#endif

float four_sum(float x) {
    x += subgroupShuffleXor(x, 1u);
    return x + subgroupShuffleXor(x, 2u);
}
float four_max(float x) {
    x = max(x, subgroupShuffleXor(x, 1u));
    return max(x, subgroupShuffleXor(x, 2u));
}

// ---- the state, as shaders/states.zon lays it out ----------------------------------------------------------------------------

uint64_t in_state(uint at) { return pc.address[0] + at; }
uint position_of(uint sequence) { return Weights1(in_state(AT_POSITIONS)).v[sequence]; }

// Of the four columns of a lane in a block of 16.
uint x_at(uint rows, uint block, uint a_lane) { return AT_X + ((rows * (HIDDEN / 16u) + block) * 32u + a_lane) * 16u; }
// Where the lane's values of two matrices lie in an array of `columns`. word_at() gives columns 0 1 (pair 0) or 8 9
// (pair 1) of a block of 16.
uint half_at(uint columns, uint rows, uint step, uint half_, uint a_lane) {
    return (((rows * (columns / 64u) + step) * 2u + half_) * 32u + a_lane) * 16u;
}
uint word_at(uint columns, uint rows, uint block, uint a_lane, uint pair) {
    uint c = a_lane & 3u;
    uint matrix = block % 4u, place = pair;
    if (BITS == 16u) { // a lane multiplies neighbouring columns of dense weights: those of a block of the four of a step
        a_lane = (a_lane & ~3u) | block % 4u;
        matrix = c / 2u + pair * 2u;
        place = c % 2u;
    }
    return half_at(columns, rows, block / 4u, matrix / 2u, a_lane) + matrix % 2u * 8u + place * 4u;
}

// ---- values of 16 bits -----------------------------------------------------------------------------------------------------

vec2 pair_value(uint w, uint dtype) {
    return dtype == DTYPE_F16 ? unpackHalf2x16(w) : vec2(uintBitsToFloat(w << 16), uintBitsToFloat(w & 0xffff0000u));
}
uint half_pair(vec2 x) { return word_of(PAIR(x)); }
uvec2 half_four(vec4 x) { return uvec2(half_pair(x.xy), half_pair(x.zw)); }

// Words of A, from words of rows 0 to 7 and of rows 8 to 15. has_row() says whether the lane's row of a block of 8 is a
// sequence.
uvec4 rows_of(uvec2 first, uvec2 second) { return uvec4(first, ROW_BLOCKS == 2u ? second : uvec2(0)); }
bool has_row(uint rows) { return rows * 8u + lane_row() < SEQUENCES; }

// ---- norms -----------------------------------------------------------------------------------------------------------------

const float NORM_SCALE = 16.0; // values before a norm are kept as 1/16 of what they are, within the range of float16
const uint NORM_BYTES = DTYPE_W == DTYPE_F32 ? 8u : 4u; // of two weights

vec2 norm_pair(uint64_t norm, uint pair) {
    uint64_t at = norm + pair * NORM_BYTES;
    return DTYPE_W == DTYPE_F32 ? uintBitsToFloat(Weights2(at).v[0]) : pair_value(Weights1(at).v[0], DTYPE_W);
}
uint before_norm(vec2 x, vec2 weight) { return half_pair(within_half(x * weight * (1.0 / NORM_SCALE))); }

uint tagged(uint word, uint tag) { return (word & ~1u) | tag; }

uint square_at(uint part, uint row, uint eight) { return part + (row * (HIDDEN / 8u) + eight) * 4u; }

#include "coopmat.glsl"
