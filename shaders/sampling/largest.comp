#version 460
// The token of each row where none is drawn: the first largest logit; see sample.glsl. It is one dispatch, since a choice between
// two steps is waited for. Each workgroup leaves the largest logit of its slice. The one that is done last takes the
// largest of those, and ends the step as leave.glsl says. No workgroup waits.
//
// best[row][slice] = (index, ordered key). done[row] counts workgroups, and is 0 before and after. Grid: (slices, rows).

#define BUFFERS 8
layout(constant_id = 3) const uint CHECKED = 0; // see sample.glsl
const uint LOGITS = 0u, BEST = 1u, DONE = 2u, NEXT = 3u, POSITION = 4u, LOG = 5u, RECENT = 6u, MASK = 7u;
const uint SCRATCH = DONE; // which sample.glsl names
#include "sample.glsl"
#include "leave.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Left1s { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Left2s { uvec2 v[]; };

shared bool is_last;

// Leaves this workgroup's best; whether all others of the row have.
bool leave_best(uint row, uvec2 best) {
    if (thread() == 0u) {
        Left2s(pc.address[BEST]).v[row * gl_NumWorkGroups.x + gl_WorkGroupID.x] = best;
        memoryBarrierBuffer();
        is_last = atomicAdd(Left1s(pc.address[DONE]).v[row], 1u) + 1u == gl_NumWorkGroups.x;
        memoryBarrierBuffer();
    }
    barrier();
    return is_last;
}

void main() {
    uint row = gl_WorkGroupID.y;
    if (!leave_best(row, best_of_slice(row, gl_WorkGroupID.x))) return;
    uvec2 best = uvec2(NO_TOKEN, 0u);
    for (uint i = thread(); i < gl_NumWorkGroups.x; i += THREADS) { // slices of one thread come in their order
        uvec2 left = Left2s(pc.address[BEST]).v[row * gl_NumWorkGroups.x + i];
        if (best.x == NO_TOKEN || left.y > best.y) best = left;
    }
    best = first_largest(best);
    if (thread() > 0u) return;
    Left1s(pc.address[DONE]).v[row] = 0u;
    leave_token(row, CHECKED != 0u && !is_finite_key(best.y) ? NO_TOKEN : best.x);
}
