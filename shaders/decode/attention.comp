#version 460
// The second phase of a layer, as attention.glsl says.

#define BUFFERS 6
#define PUSH DecodeCachePush
#include "decode.glsl"

const uint STATE = 0u, O = 1u, O_SCALES_BIASES = 2u, KEYS = 3u, VALUES = 4u, PAGES = 5u;
layout(constant_id = 18) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 19
#define NORMS_ID 24

#include "ropes.glsl"
#include "layer.glsl"

#include "attention.glsl"

void main() {
    attention();
    tell_lost();
}
