#version 460
// batch_project.glsl as a dispatch of its own: workgroup (8 rows) and (eight sequences).

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#endif
#define BUFFERS 3
const uint STATE = 0u, NORM = 0u, CODES = 1u, AFFINE = 2u;
#define POOL PROJECT_WORDS
#include "batch.glsl"
layout(constant_id = 14) const uint WORDS = 256; // of a row
layout(constant_id = 15) const uint RUN = 16;
#include "batch_project.glsl"

void main() {
    Rows rows;
    load_rows(gl_WorkGroupID.x, ADDRESS(CODES), ADDRESS(AFFINE), WORDS, rows);
    uint64_t before = residual_before(gl_WorkGroupID.x, gl_WorkGroupID.y);
    keep_rows(WORDS, RUN, rows);
    barrier();
    add_rows(gl_WorkGroupID.x, gl_WorkGroupID.y, WORDS, RUN, before);
}
