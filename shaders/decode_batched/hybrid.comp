#version 460
// A phase of a layer of several sequences, after a barrier, where some layers are recurrent or heads have gates. It is layers.comp with two kinds
// of layers. A recurrent one has other columns in its first product. In the place of attention it has what net.glsl says.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 6
#define PUSH DecodeHybridPush

// Sizes of recurrent layers, as decode_gemv/net_sizes.glsl has them. The constants between are of kernels that read b and a apart.
layout(constant_id = 24) const uint GATES = 0u; // whether heads of q have gates of what they attend to
layout(constant_id = 25) const uint KEEPS = 0u; // whether states stay, and what they follow from is left to others
layout(constant_id = 26) const uint VALUE_HEADS = 32u;
layout(constant_id = 27) const uint KEY_HEADS = 16u; // a divisor of them
layout(constant_id = 28) const uint KEY_DIM = 128u;
layout(constant_id = 29) const uint VALUE_DIM = 128u;
layout(constant_id = 30) const uint WINDOW = 4u;      // of the convolution
layout(constant_id = 32) const uint DTYPE_X = 0u;     // of the convolution's inputs
layout(constant_id = 33) const uint DTYPES_RATE = 0u; // of A and d, a byte each
layout(constant_id = 34) const uint UNIT_EPS = 0u;    // float bits: added to the squares of the lengths of q and k

const uint ALL_KEYS = KEY_HEADS * KEY_DIM, ALL_VALUES = VALUE_HEADS * VALUE_DIM, MIXED = 2u * ALL_KEYS + ALL_VALUES;
const uint NET_COLUMNS = MIXED + ALL_VALUES + 2u * VALUE_HEADS; // x, z, b and a
#define HYBRID_STATE
#include "batch.glsl"

const uint ONE = 0x3f800000u;
layout(constant_id = 11) const uint PHASES = 1u;
layout(constant_id = 12) const uint ROUNDS = 0u;          // 1: a warp has no more than one block of 16 positions
layout(constant_id = 13) const uint HEAD_NORM = 1u;       // whether heads of q and k are normalised
layout(constant_id = 14) const uint QKV_BIAS = 0u;        // whether q, k and v have biases
layout(constant_id = 15) const uint ACTIVATION = 0u;      // of the gate, as activation.glsl has them
layout(constant_id = 16) const uint TOKENS = 1u;          // rows of each sequence
layout(constant_id = 17) const uint RESIDUAL_SCALE = ONE; // float bits: the factor of what a part adds to the residual
layout(constant_id = 18) const uint PAGE = 0u;            // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 19

const bool WAITS = false;

const uint STATE = 0u, STATUS = 1u, PAGES = 2u, SLOTS = 3u, SLOT_POSITIONS = 4u, TABLE = 5u;

// Columns of the table, as layers.comp has them; V is of dense weights. Recurrent layers have others in some.
const uint NORMS = 0u, KEYS = 1u, VALUES = 2u, QKV = 3u, QKV_SCALES_BIASES = 4u, O = 5u, O_SCALES_BIASES = 6u, GATE_UP = 7u,
           GATE_UP_SCALES_BIASES = 8u, DOWN = 9u, DOWN_SCALES_BIASES = 10u, V = QKV, NEXT_NORM = 11u, CONV = 12u, DT_BIAS = 13u,
           LOG_RATE = 14u, KEPT = 15u, COLUMNS = 16u;
const uint PAST = KEYS, MATRIX = VALUES;

const float GATE_SCALE = 16.0; // gated values are kept as 1/16 of what they are

uint layer;
#define ADDRESS(which) (pack64(Weights2(pc.address[TABLE]).v[(which)]))

const uint WEIGHT_BYTES = DTYPE_W == DTYPE_F32 ? 4u : 2u;
uint64_t mlp_norm() { return ADDRESS(NORMS) + HIDDEN * WEIGHT_BYTES; }
uint64_t q_norm() { return ADDRESS(NORMS) + 2u * HIDDEN * WEIGHT_BYTES; }
uint64_t k_norm() { return ADDRESS(NORMS) + (2u * HIDDEN + HEAD_DIM) * WEIGHT_BYTES; }
uint64_t qkv_bias() { return ADDRESS(NORMS) + (2u * HIDDEN + HEAD_NORM * 2u * HEAD_DIM) * WEIGHT_BYTES; }
uint64_t output_norm() { return ADDRESS(NORMS) + 2u * HIDDEN * WEIGHT_BYTES; } // of recurrent layers
uint64_t next_norm() { return ADDRESS(NEXT_NORM); }                            // of the layer after this one, or of the head

bool is_net; // whether the layer at hand is recurrent
#define MOST_COLUMNS (NET_COLUMNS > QKV_COLUMNS ? NET_COLUMNS : QKV_COLUMNS)
#define JOINT_COLUMNS (is_net ? NET_COLUMNS : QKV_COLUMNS)
#define JOINT_AT (is_net ? AT_NET : AT_FRESH)

#include "include/activation.glsl"
#include "decode/ropes.glsl"
#include "squares.glsl"
#include "net_units.glsl"
#include "matmul.glsl"
#include "normed.glsl"
#include "attention.glsl"
#include "net.glsl"
#include "project.glsl"

void main() {
    find_bases((pc.p.capacity + thread()) >> 31);
    turn = 0u;
    layer = pc.p.layer;
    is_net = pc.p.nets[0] != 0u;
    uint last = gl_NumWorkGroups.x - 1u - gl_WorkGroupID.x; // as in layers.comp
    if ((PHASES & 1u) != 0u)
        normed_product(AT_BEFORE, AT_BEFORE_SQUARES, ADDRESS(QKV), ADDRESS(QKV_SCALES_BIASES), gl_WorkGroupID.x, joint_units(), false);
    if ((PHASES & 2u) != 0u) {
        uint units = is_net ? UPDATE_UNITS : ATTEND_UNITS;
        [[dont_unroll]] for (uint unit = last; unit < units; unit += gl_NumWorkGroups.x) {
            barrier(); // shared memory was read
            if (is_net) update(unit);
            else attention(unit);
        }
    }
    if ((PHASES & 4u) != 0u)
        project(AT_ATTENTION, Q_COLUMNS, ADDRESS(O), ADDRESS(O_SCALES_BIASES), uintBitsToFloat(RESIDUAL_SCALE), mlp_norm(), AT_AFTER,
                AT_AFTER_SQUARES, tag_of_layer());
    if ((PHASES & 8u) != 0u)
        normed_product(AT_AFTER, AT_AFTER_SQUARES, ADDRESS(GATE_UP), ADDRESS(GATE_UP_SCALES_BIASES), last, INTERMEDIATE / 16u, true);
    if ((PHASES & 16u) != 0u)
        project(AT_GATED, INTERMEDIATE, ADDRESS(DOWN), ADDRESS(DOWN_SCALES_BIASES), GATE_SCALE * uintBitsToFloat(RESIDUAL_SCALE),
                next_norm(), AT_BEFORE, AT_BEFORE_SQUARES, tag_of_next_layer());
}
