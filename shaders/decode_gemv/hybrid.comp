#version 460
// The phases of many layers in one dispatch (all_layers.glsl). Layers with attention and recurrent ones may follow each other, heads may have
// gates, and all tokens may take an expert. Its score has a workgroup of its own, after the others.
//
// What one kind of layers alone writes has the tags of the layers of that kind. The second layer with attention is layer 1 of them. So a word
// of the one before is never taken for it, however many layers of the other kind stand between. There are none of a kind, or two and more.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 6
#define POLL
#define PUSH DecodeHybridPush
#define RECURRENT
#define IS_NET is_net()
#define NET_ID 41

const uint STATE = 0u, STATUS = 1u, PAGES = 2u, STATE_SLOT = 3u, POSITION = 4u, TABLE = 5u;

// Columns of the table.
const uint NORMS = 0u, Q = 1u, K = 2u, V = 3u, QKV_SCALES_BIASES = 4u, KEYS = 5u, VALUES = 6u, O = 7u, O_SCALES_BIASES = 8u, GATE = 9u,
           UP = 10u, GATE_UP_SCALES_BIASES = 11u, DOWN = 12u, DOWN_SCALES_BIASES = 13u, STEP = 14u, RATES_SCALES_BIASES = 15u, CONV = 16u,
           DT_BIAS = 17u, LOG_RATE = 18u, ROUTER = 19u, ROUTER_SCALES_BIASES = 20u, SHARED_ROUTER = 21u, SHARED_GATE = 22u, SHARED_UP = 23u,
           SHARED_DOWN = 24u, TABLE_COLUMNS = 25u;
// Those of recurrent layers that others have other values in.
const uint RATE = V, PAST = KEYS, MATRIX = VALUES;

layout(constant_id = 25) const uint EXPERTS = 0u;    // of a layer, see experts.glsl
layout(constant_id = 37) const uint GATED = 0u;      // whether heads of q have gates of what they attend to
layout(constant_id = 38) const uint SHARED = 0u;     // whether there is an expert that all tokens take
layout(constant_id = 40) const uint DOWN_PARTS = 1u; // see gemv.glsl

const uint COLUMNS = EXPERTS == 0u ? ROUTER : SHARED == 0u ? SHARED_ROUTER : TABLE_COLUMNS; // that layers need
#define LAYERS_ID 39
#include "own_invocation.glsl"

uint own_tag;
bool is_net();
#define OWN_TAG own_tag
#include "gemv.glsl"
layout(constant_id = 31) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 32
#include "decode/ropes.glsl"
#include "attention.glsl"

bool is_net() { return (pc.p.nets[layer / 32u] >> layer % 32u & 1u) != 0u; }

// The tag of what layers of this one's kind alone write.
uint tag_of_kind() {
    uint low = layer < 32u ? (1u << layer) - 1u : ~0u, high = layer < 32u ? 0u : (1u << layer % 32u) - 1u;
    uint nets = uint(bitCount(pc.p.nets[0] & low) + bitCount(pc.p.nets[1] & high));
    return tag_of(is_net() ? nets : layer - nets);
}

#include "recurrent.glsl"
#include "phases.glsl"
#include "all_layers.glsl"
