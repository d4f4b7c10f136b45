#version 460
// A phase of a layer, as gemv.glsl lists them, after a barrier. The operands of a phase are at the same places for
// all of them.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 9
#define PUSH DecodeCachePush

const uint STATE = 0u, NORMS = 1u, KEYS = 6u, VALUES = 7u, PAGES = 8u;
const uint Q = 2u, K = 3u, V = 4u, O = 2u, GATE = 2u, UP = 3u, DOWN = 2u, ROUTER = 2u;
const uint QKV_SCALES_BIASES = 5u, O_SCALES_BIASES = 5u, GATE_UP_SCALES_BIASES = 5u, DOWN_SCALES_BIASES = 5u, ROUTER_SCALES_BIASES = 5u;

layout(constant_id = 25) const uint EXPERTS = 0u;    // of a layer, see experts.glsl
layout(constant_id = 38) const uint GATED = 0u;      // whether heads of q have gates of what they attend to
layout(constant_id = 39) const uint SHARED = 0u;     // whether there is an expert that all tokens take
layout(constant_id = 40) const uint DOWN_PARTS = 1u; // see gemv.glsl
const uint SHARED_ROUTER = 3u, SHARED_GATE = 4u, SHARED_UP = 6u, SHARED_DOWN = 3u;

#include "gemv.glsl"
layout(constant_id = 31) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 32
#include "decode/ropes.glsl"
#include "attention.glsl"
#include "phases.glsl"

void main() {
    all_phases(); // the one of PHASES
    tell_lost();
}
