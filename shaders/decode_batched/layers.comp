#version 460
// The phases of many layers of several sequences in one dispatch. Each workgroup goes through all of them, takes units
// of each, and spins until what it needs of others is there. That needs all workgroups to run at the same time, which
// Vulkan does not promise. schedule/decoder/megakernel.ts decides whether it is tried. A workgroup that waits for too
// long sets the status.
//
// PHASES has a bit for each of them, so that a dispatch may also be a single phase of a layer after a barrier. Such a
// dispatch waits for no workgroup and leaves the same bits. Any number of workgroups. The addresses of a layer's
// buffers stand in rows of a table.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define PUSH DecodeLayersPush
#include "batch.glsl"

const uint ONE = 0x3f800000u;
layout(constant_id = 11) const uint PHASES = 31u;
layout(constant_id = 12) const uint ROUNDS = 0u;          // 1: a warp has no more than one block of 16 positions
layout(constant_id = 13) const uint HEAD_NORM = 1u;       // whether heads of q and k are normalised
layout(constant_id = 14) const uint QKV_BIAS = 0u;        // whether q, k and v have biases
layout(constant_id = 15) const uint ACTIVATION = 0u;      // of the gate, as activation.glsl has them
layout(constant_id = 16) const uint TOKENS = 1u;          // rows of each sequence
layout(constant_id = 17) const uint RESIDUAL_SCALE = ONE; // float bits: the factor of what a part adds to the residual
layout(constant_id = 18) const uint PAGE = 0u;            // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 19

const uint ALL_PHASES = 31u;
const bool WAITS = PHASES == ALL_PHASES;

const uint STATE = 0u, STATUS = 1u, PAGES = 2u, TABLE = 3u;

// Columns of the table; all norm weights and biases of a layer are contiguous. Of dense weights QKV is q and beside it
// k, GATE_UP gate and beside it up; only they have V.
const uint NORMS = 0u, KEYS = 1u, VALUES = 2u, QKV = 3u, QKV_SCALES_BIASES = 4u, O = 5u, O_SCALES_BIASES = 6u, GATE_UP = 7u,
           GATE_UP_SCALES_BIASES = 8u, DOWN = 9u, DOWN_SCALES_BIASES = 10u, V = 11u, COLUMNS = 12u;

const float GATE_SCALE = 16.0; // gated values are kept as 1/16 of what they are

uint layer;
const uint MAX_LAYERS = 64u;
shared uvec2 addresses[WAITS ? MAX_LAYERS * COLUMNS : 1u]; // a dispatch of one phase is one of one layer, and reads its own
#define ADDRESS(which) (pack64(WAITS ? addresses[(layer - pc.p.layer) * COLUMNS + (which)] : Weights2(pc.address[TABLE]).v[(which)]))

const uint WEIGHT_BYTES = DTYPE_W == DTYPE_F32 ? 4u : 2u;
uint64_t mlp_norm() { return ADDRESS(NORMS) + HIDDEN * WEIGHT_BYTES; }
uint64_t q_norm() { return ADDRESS(NORMS) + 2u * HIDDEN * WEIGHT_BYTES; }
uint64_t k_norm() { return ADDRESS(NORMS) + (2u * HIDDEN + HEAD_DIM) * WEIGHT_BYTES; }
uint64_t qkv_bias() { return ADDRESS(NORMS) + (2u * HIDDEN + HEAD_NORM * 2u * HEAD_DIM) * WEIGHT_BYTES; }
uint64_t next_norm() { return qkv_bias() + QKV_BIAS * QKV_COLUMNS * WEIGHT_BYTES; } // of the layer after this one, or of the head

#include "include/activation.glsl"
#include "decode/ropes.glsl"
#include "squares.glsl"
#include "matmul.glsl"
#include "normed.glsl"
#include "attention.glsl"
#include "project.glsl"

void main() {
    if (WAITS && Shared1(pc.address[STATUS]).v[0] != 0u) return;
    find_bases((pc.p.capacity + thread()) >> 31);
    turn = 0u;
    if (WAITS) {
        for (uint i = thread(); i < pc.p.layers * COLUMNS; i += THREADS) addresses[i] = Weights2(pc.address[TABLE]).v[i];
        barrier();
    }
    // There are fewer units of o and down than workgroups: those that have none begin with the others' second units.
    uint last = gl_NumWorkGroups.x - 1u - gl_WorkGroupID.x;
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers; layer++) {
        if ((PHASES & 1u) != 0u)
            normed_product(AT_BEFORE, AT_BEFORE_SQUARES, ADDRESS(QKV), ADDRESS(QKV_SCALES_BIASES), gl_WorkGroupID.x, joint_units(), false);
        if ((PHASES & 2u) != 0u) {
            [[dont_unroll]] for (uint unit = last; unit < ATTEND_UNITS; unit += gl_NumWorkGroups.x) {
                barrier(); // shared memory was read
                attention(unit);
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
}
