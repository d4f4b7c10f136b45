#version 460
// The third phase of a layer, as decode_mlp.glsl says.

#define BUFFERS 7
#include "decode.glsl"
#include "decode_rows.glsl"

const uint STATE = 0u, MLP_NORM = 1u, GATE = 2u, UP = 3u, MLP_AFFINE = 4u, DOWN = 5u, DOWN_AFFINE = 6u;

#include "decode_mlp.glsl"

void main() {
    mlp_norm();
    barrier();
    mlp_hidden();
    barrier();
    mlp_rows();
}
