#version 460
// best[row][slice] = (index, ordered key) of the largest logit of each slice; see sample.glsl. It also clears the histogram
// for the kernels after it. One workgroup a slice.

#define BUFFERS 4
const uint LOGITS = 0u, BEST = 1u, SCRATCH = 2u, MASK = 3u;
#include "sample.glsl"

void main() {
    uint slice = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    if (slice == 0u && pc.address[SCRATCH] != 0ul)
        for (uint i = thread(); i < SAMPLE_CLEARED; i += THREADS) U32s(scratch(row)).v[i] = 0u;
    uvec2 best = best_of_slice(row, slice);
    if (thread() == 0u) U32x2s(pc.address[BEST]).v[row * gl_NumWorkGroups.x + slice] = best;
}
