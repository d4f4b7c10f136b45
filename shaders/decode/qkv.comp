#version 460
// The first phase of a layer, as qkv.glsl says.

#define BUFFERS 9
#define PUSH DecodeCachePush
#include "decode.glsl"

const uint STATE = 0u, NORMS = 1u, Q = 2u, K = 3u, V = 4u, QKV_SCALES_BIASES = 5u, KEYS = 6u, VALUES = 7u, PAGES = 8u;
layout(constant_id = 18) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 19
#define NORMS_ID 24

#include "ropes.glsl"
#include "layer.glsl"
#include "row_products.glsl"

#include "qkv.glsl"

void main() {
    qkv();
    tell_lost();
}
