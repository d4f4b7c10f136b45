#version 460
// A phase of a recurrent layer before its feed-forward part (recurrent.glsl), after a barrier. Phases, by the bits of those of a layer with
// attention:
//
//   qkv        norm, rows of four products: queries, keys and values x, the gate z, and of each head b and a. The convolution of x
//   attention  (head, rows of S): the state of a head, and its outputs
//   o          norm of outputs, rows of the output projection, added to the residual
//
// The feed-forward part is that of phase.comp. hybrid.comp has the phases of all layers in one dispatch.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 12
#define PUSH DecodeRecurrentPush
#define RECURRENT
#define IS_NET true
#define NET_ID 31

const uint STATE = 0u, NORMS = 1u, STATE_SLOT = 10u, POSITION = 11u;
const uint Q = 2u, K = 3u, V = 3u, QKV_SCALES_BIASES = 4u, RATE = 5u, STEP = 6u, RATES_SCALES_BIASES = 7u, CONV = 8u, PAST = 9u;
const uint DT_BIAS = 2u, LOG_RATE = 3u, MATRIX = 9u;
const uint O = 2u, O_SCALES_BIASES = 4u;
// Of products that it does not have.
const uint GATE = 2u, UP = 3u, DOWN = 2u, ROUTER = 2u, GATE_UP_SCALES_BIASES = 4u, DOWN_SCALES_BIASES = 4u, ROUTER_SCALES_BIASES = 4u;
const uint EXPERTS = 0u, GATED = 0u, DOWN_PARTS = 1u;
const uint SHARED = 0u, SHARED_ROUTER = 0u, SHARED_GATE = 0u, SHARED_UP = 0u, SHARED_DOWN = 0u;

#include "gemv.glsl"
#include "residual.glsl"
void attended_eight(uint eight, out vec4 x, out vec4 y) { x = y = vec4(0); } // of layers with attention
#include "recurrent.glsl"

void main() {
    find_state();
    if (PHASES == PHASE_QKV) {
        ask_net();
        qkv_ahead();
        if (!RATES_ALIKE) rates_alone();
        norm_to_vector(AT_RESIDUAL, tag_before(LAYER), ADDRESS(NORMS), QKV_FORMAT);
        if (RATES_ALIKE) multiply_rates();
        qkv_multiply();
        project(norm_scale());
    }
    if (PHASES == PHASE_ATTENTION) update(workgroup());
    if (PHASES == PHASE_O) {
        o_ahead();
        take_carried(AT_RESIDUAL);
        first_vector();
        o_multiply();
        add_to_residual(AT_AFTER, owns() ? o_sum(thread()) : 0.0);
    }
    tell_lost();
}
