#version 460
// The first phase of a layer, as qkv.glsl says.

#define BUFFERS 8
#include "decode.glsl"
#include "layer.glsl"
#include "row_products.glsl"

const uint STATE = 0u, NORMS = 1u, Q = 2u, K = 3u, V = 4u, QKV_SCALES_BIASES = 5u, KEYS = 6u, VALUES = 7u;

#include "qkv.glsl"

void main() {
    qkv();
    tell_lost();
}
