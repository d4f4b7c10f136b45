#version 460
// A phase of a layer, as gemv.glsl lists them, after a barrier. The operands of a phase are at the same places for
// all of them.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8

const uint STATE = 0u, NORMS = 1u, KEYS = 6u, VALUES = 7u;
const uint Q = 2u, K = 3u, V = 4u, O = 2u, GATE = 2u, UP = 3u, DOWN = 2u;
const uint QKV_SCALES_BIASES = 5u, O_SCALES_BIASES = 5u, GATE_UP_SCALES_BIASES = 5u, DOWN_SCALES_BIASES = 5u;

#include "gemv.glsl"
#include "attention.glsl"
#include "phases.glsl"

void main() {
    one_phase();
    tell_lost();
}
