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
//
// With POLL the phases of many layers run in one dispatch, batch_layers.comp: a phase asks for its weights, waits until the
// workgroups that it depends on have counted themselves, and reads what they left past the caches. Without POLL a dispatch is one
// phase of one layer, and pipeline barriers stand between them.

#define SUMS 0
uint sequence; // that a thread serves
#define SEQUENCE sequence
#include "decode.glsl"

layout(constant_id = 13) const uint SEQUENCES = 8;

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Weights1 { uint v[]; };

const uint ROWS = 8u; // sequences that share weights, and rows of a projection
#define QKV_BLOCKS 2u   // blocks of four tasks that a workgroup makes at once
#define GATE_UP_BLOCKS 3u

// A projection multiplies blocks of 8 activations by words of codes. A unit is what one workgroup of the kernels for one sequence
// multiplies there: its words are added up in floats, units in fixed point. Word i of unit u is (u / run * parts + i) * run + u % run.
// Sixteen warps share the units; a place is where a word lies among those of all warps: pairs of units, then parts, then the two.
const uint O_WORDS = WORKGROUPS * HEADS, DOWN_WORDS = INTERMEDIATE / 8u; // of a row
const uint O_RUN = SLICES, DOWN_RUN = 1u;
const uint UNITS = WORKGROUPS, WARP_UNITS = (UNITS + 31u) / 32u * 2u;
uint parts_of(uint words) { return (words + UNITS - 1u) / UNITS; }
#define PLACES(words) (((words) + UNITS - 1u) / UNITS * WARP_UNITS + 7u) / 8u * 8u * 16u
const uint O_PLACES = PLACES(O_WORDS), DOWN_PLACES = PLACES(DOWN_WORDS);
uint places_of_warp(uint words) { return PLACES(words) / 16u; }

uint place_of(uint word, uint words, uint run) {
    uint parts = parts_of(words), unit = word / run / parts * run + word % run, part = word / run % parts;
    return unit / WARP_UNITS * places_of_warp(words) + (unit % WARP_UNITS / 2u * parts + part) * 2u + (unit & 1u);
}

// What lies in memory for each sequence, in bytes: position, turns, the residual as floats and as sums, q and k of the new
// token for each key/value head, parts of their sums of squares, its values, and blocks of 8 activations: what attention or the
// gates gave. Behind all sequences counters of finished workgroups. schedule/batch.ts computes the same size.
const uint AT_TURNS = 256u;
const uint AT_X = AT_TURNS + HEAD_DIM * 4u;
const uint AT_SUMS = AT_X + HIDDEN * 4u;
const uint AT_HEADS = AT_SUMS + HIDDEN * 8u;
const uint AT_SQUARES = AT_HEADS + SQUARES * HEAD_DIM * 4u;
const uint AT_VALUES = AT_SQUARES + SQUARES * SLICES * 16u;
const uint AT_BLOCKS = AT_VALUES + KV_HEADS * HEAD_DIM * 4u;
const uint MOST_BLOCKS = O_PLACES > DOWN_PLACES ? O_PLACES : DOWN_PLACES; // room for either
const uint AT_SCALES = AT_BLOCKS + MOST_BLOCKS * 16u;
const uint SEQUENCE_BYTES = (AT_SCALES + MOST_BLOCKS * 8u + 255u) / 256u * 256u;

// Of a block: element t of four holds features t and t + 4 as halves plus 0x8080; four blocks lie element by element.
uint element_at(uint place, uint t) { return (place & ~3u) * 4u + t * 4u + (place & 3u); }

uint64_t in_state(uint at) { return pc.address[0] + uint64_t(sequence) * SEQUENCE_BYTES + at; }
uint now_of_sequence() { return U32s(in_state(0u)).v[0]; }

// Workgroups that are done with a phase are counted for each key/value head, in cache lines of their own.
const uint PHASES = 5u;
uint64_t counter_at(uint phase, uint head) { return pc.address[0] + uint64_t(SEQUENCES * SEQUENCE_BYTES + (phase * KV_HEADS + head) * 128u); }

// All norm weights of a layer lie one behind the other.
const uint WEIGHT_BYTES = DTYPE_W == DTYPE_F32 ? 4u : 2u;
uint64_t mlp_norm() { return ADDRESS(NORM) + HIDDEN * WEIGHT_BYTES; }
uint64_t q_norm() { return ADDRESS(NORM) + 2u * HIDDEN * WEIGHT_BYTES; }
uint64_t k_norm() { return ADDRESS(NORM) + (2u * HIDDEN + HEAD_DIM) * WEIGHT_BYTES; }

// Whole numbers of 16 bits, as halves plus 0x8080, become bytes of -128 to 127 in float16; weights 0 to 15 as they are.
#ifdef MATRICES
f16vec2 bytes_minus(uint u) { return unpackFloat2x16((u & 0x00ff00ffu) | 0x64006400u) - f16vec2(1152.0hf); }
f16vec2 low_nibbles(uint u) { return unpackFloat2x16((u & 0x000f000fu) | 0x64006400u) - f16vec2(1024.0hf); }
f16vec2 high_nibbles(uint u) { return unpackFloat2x16((u & 0x00f000f0u) | 0x54005400u) - f16vec2(64.0hf); }

MATRIX_A matrix_a(f16vec2 a, f16vec2 b, f16vec2 c, f16vec2 d) {
    MATRIX_A m;
    m[0] = a.x; m[1] = a.y; m[2] = b.x; m[3] = b.y;
    m[4] = c.x; m[5] = c.y; m[6] = d.x; m[7] = d.y;
    return m;
}
MATRIX_B matrix_b(f16vec2 a, f16vec2 b, f16vec2 c, f16vec2 d) {
    MATRIX_B m;
    m[0] = a.x; m[1] = a.y; m[2] = b.x; m[3] = b.y;
    m[4] = c.x; m[5] = c.y; m[6] = d.x; m[7] = d.y;
    return m;
}
#endif

// What a phase needs of shared memory, in words: parts of products, scores and parts of values, rows of a matrix.
const uint PART_WORDS = 2048u; // 16 warps, 4 rows to a lane
const uint HEAD_PARTS = SLICES % 2u == 0u ? 2u : 1u; // workgroups that share the features of a key/value head
const uint SCORE_WORDS = 512u * UNROLL;
const uint ATTEND_WORDS = SCORE_WORDS + SLICES / HEAD_PARTS * 128u;
const uint ROW_STRIDE = MOST_BLOCKS + 4u; // rows begin in other banks
const uint ROW_WORDS = ROWS * ROW_STRIDE, PROJECT_WORDS = ROW_WORDS + 16u * ROWS * ROWS * 2u;
const uint PARTS_WORDS = GATE_UP_BLOCKS * PART_WORDS;
const uint OTHER_WORDS = ATTEND_WORDS > PROJECT_WORDS ? ATTEND_WORDS : PROJECT_WORDS;
const uint LAYERS_WORDS = OTHER_WORDS > PARTS_WORDS ? OTHER_WORDS : PARTS_WORDS;
shared uint pool[POOL];

uint64_t lane_xor64(uint64_t x, uint mask) {
    uvec2 w = unpack32(x);
    return pack64(uvec2(lane_xor(w.x, mask), lane_xor(w.y, mask)));
}
