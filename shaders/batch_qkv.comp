#version 460
// batch_qkv.glsl as a dispatch of its own: workgroup (key/value head, slice) and (eight sequences).

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#define BUFFERS 4
const uint STATE = 0u, NORM = 1u, QKV_AFFINE = 2u, QKV_CODES = 3u;
#else
#define BUFFERS 6
const uint STATE = 0u, NORM = 1u, QKV_AFFINE = 2u, Q = 3u, K = 4u, V = 5u;
#endif
#define POOL QKV_BLOCKS * PART_WORDS
#include "batch.glsl"
#include "batch_norm.glsl"
#include "batch_qkv.glsl"

void main() { qkv(gl_WorkGroupID.y, gl_WorkGroupID.y + 1u); }
