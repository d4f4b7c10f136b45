#version 460
// The first phase of a layer, as qkv.glsl says.

#define BUFFERS 10
#include "decode.glsl"
#include "rows.glsl"

const uint STATE = 0u, NORM = 1u, Q = 2u, K = 3u, V = 4u, QKV_SCALES_BIASES = 5u, Q_NORM = 6u, K_NORM = 7u, KEYS = 8u, VALUES = 9u;

#include "qkv.glsl"

void main() {
    qkv();
    tell_lost();
}
