#version 460
// The phases of many layers in one dispatch (all_layers.glsl). hybrid.comp has those of decoders with recurrent layers, gates of heads or an
// expert of all tokens.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define POLL
#define PUSH DecodeLayersPush

const uint STATE = 0u, STATUS = 1u, PAGES = 2u, TABLE = 3u;

// Columns of the table.
const uint NORMS = 0u, Q = 1u, K = 2u, V = 3u, QKV_SCALES_BIASES = 4u, KEYS = 5u, VALUES = 6u, O = 7u, O_SCALES_BIASES = 8u, GATE = 9u,
           UP = 10u, GATE_UP_SCALES_BIASES = 11u, DOWN = 12u, DOWN_SCALES_BIASES = 13u, ROUTER = 14u, ROUTER_SCALES_BIASES = 15u,
           TABLE_COLUMNS = 16u;

layout(constant_id = 25) const uint EXPERTS = 0u;    // of a layer, see experts.glsl
layout(constant_id = 39) const uint DOWN_PARTS = 1u; // see gemv.glsl
const uint GATED = 0u, SHARED = 0u, SHARED_ROUTER = 0u, SHARED_GATE = 0u, SHARED_UP = 0u, SHARED_DOWN = 0u;

const uint COLUMNS = EXPERTS == 0u ? ROUTER : TABLE_COLUMNS; // that layers need
#define LAYERS_ID 38
#include "own_invocation.glsl"
#include "gemv.glsl"
layout(constant_id = 31) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 32
#include "decode/ropes.glsl"
#include "attention.glsl"
#include "phases.glsl"
#include "all_layers.glsl"
