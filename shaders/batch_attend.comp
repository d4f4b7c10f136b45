#version 460
// batch_attend.glsl as a dispatch of its own: workgroup (key/value head, part of its features) and (sequence).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
const uint STATE = 0u, NORM = 0u, KEYS = 1u, VALUES = 2u;
#define POOL ATTEND_WORDS
#include "batch.glsl"
#include "batch_attend.glsl"

void main() {
    attend(gl_WorkGroupID.x, gl_WorkGroupID.y);
    keep_new();
}
