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
    uvec2 best = uvec2(NO_TOKEN, 0u);
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        uint i = slice * SLICE + n * THREADS + thread();
        if (i >= COLS) continue;
        uint key = key_of(logit(row, i));
        if (best.x == NO_TOKEN || key > best.y) best = uvec2(i, key);
    }
    uint key = largest(best.y);
    uint index = ~largest(best.y == key ? ~best.x : 0u);
    if (thread() == 0u) U32x2s(pc.address[BEST]).v[row * gl_NumWorkGroups.x + slice] = uvec2(index, key);
}
