#version 460
// batch_gate_up.glsl as a dispatch of its own: workgroup (some blocks of 8 features) and (eight sequences).

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#define BUFFERS 4
const uint STATE = 0u, NORM = 1u, MLP_AFFINE = 2u, MLP_CODES = 3u;
#else
#define BUFFERS 5
const uint STATE = 0u, NORM = 1u, MLP_AFFINE = 2u, GATE = 3u, UP = 4u;
#endif
#define POOL GATE_UP_BLOCKS * PART_WORDS
#include "batch.glsl"
#include "batch_norm.glsl"
#include "batch_gate_up.glsl"

void main() { gate_up(gl_WorkGroupID.y, gl_WorkGroupID.y + 1u); }
