#version 460
// The third phase of a layer, as mlp.glsl says.

#define BUFFERS 7
#define NORMS_ID 18
#include "decode.glsl"
#include "layer.glsl"
#include "row_products.glsl"

const uint STATE = 0u, NORMS = 1u, GATE = 2u, UP = 3u, MLP_SCALES_BIASES = 4u, DOWN = 5u, DOWN_SCALES_BIASES = 6u;

#include "mlp.glsl"

void main() {
    mlp();
    tell_lost();
}
