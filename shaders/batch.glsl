// What the kernels of several sequences share: a token of each of them through a whole decoder, with weights that are read once
// for eight sequences. A layer takes five dispatches, and every sum is made by one workgroup:
//
//   qkv      norm, q, k and v of a slice of a head, rotary positions
//   attend   softmax and values of a part of a head
//   project  the output projection, added to the residual
//   gate_up  norm, some gate and up rows, silu * up
//   project  the down projection, added to the residual
//
// Every value is rounded where and as the kernels of one sequence do it (decode.glsl, 64-bit sums), in the same order, so that a
// sequence gets bit for bit what it would get alone. Sums in integers are the same in any order.

#define SUMS 0
uint sequence; // that a thread serves
#define SEQUENCE sequence
#include "decode.glsl"

layout(constant_id = 13) const uint SEQUENCES = 8;

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Weights1 { uint v[]; };

const uint ROWS = 8u; // sequences of a workgroup that shares weights

// What lies in memory for each sequence, in bytes: position, turns, the residual as floats and as sums, q and k of the new
// token for each key/value head, parts of their sums of squares, and blocks of 8 activations: what attention or the gates gave.
// schedule/batch.ts computes the same size.
const uint AT_TURNS = 256u;
const uint AT_X = AT_TURNS + HEAD_DIM * 4u;
const uint AT_SUMS = AT_X + HIDDEN * 4u;
const uint AT_HEADS = AT_SUMS + HIDDEN * 8u;
const uint AT_SQUARES = AT_HEADS + SQUARES * HEAD_DIM * 4u;
const uint AT_BLOCKS = AT_SQUARES + SQUARES * SLICES * 16u;
const uint MOST_BLOCKS = WORKGROUPS * HEADS + INTERMEDIATE / 8u; // room for either
const uint AT_SCALES = AT_BLOCKS + MOST_BLOCKS * 16u;
const uint SEQUENCE_BYTES = (AT_SCALES + MOST_BLOCKS * 8u + 255u) / 256u * 256u;

uint64_t in_state(uint at) { return pc.address[0] + uint64_t(sequence) * SEQUENCE_BYTES + at; }
uint now_of_sequence() { return U32s(in_state(0u)).v[0]; }

uint64_t lane_xor64(uint64_t x, uint mask) {
    uvec2 w = unpack32(x);
    return pack64(uvec2(lane_xor(w.x, mask), lane_xor(w.y, mask)));
}
