#version 460
// The second phase of a layer, as attention.glsl says.

#define BUFFERS 5
#include "decode.glsl"
#include "layer.glsl"

const uint STATE = 0u, O = 1u, O_SCALES_BIASES = 2u, KEYS = 3u, VALUES = 4u;

#include "attention.glsl"

void main() {
    attention();
    tell_lost();
}
