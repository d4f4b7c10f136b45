#version 460
// best[row][slice] = (index, ordered key) of the largest logit of each slice; see sample.glsl. It also clears the histogram
// for the kernels after it. One workgroup a slice.

#define BUFFERS 3
#include "sample.glsl"

void main() {
    uint row = flat_workgroup() / slices(), slice = flat_workgroup() % slices();
    if (row >= pc.p.rows) return;
    if (slice == 0u && pc.address[SCRATCH] != 0ul)
        for (uint i = thread(); i < SAMPLE_CLEARED; i += THREADS) U32s(scratch(row)).v[i] = 0u;
    uvec2 best = uvec2(NONE, 0u);
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        uint i = slice * SLICE + n * THREADS + thread();
        if (i >= pc.p.cols) continue;
        uint key = key_of(logit(row, i));
        if (best.x == NONE || key > best.y) best = uvec2(i, key);
    }
    best = best_of(best);
    if (thread() == 0u) U32x2s(pc.address[BEST]).v[row * slices() + slice] = best;
}
