#version 460
// The token of each row: the first largest logit, or a draw; see sample.glsl. Where no row draws, one workgroup a row serves.
//
// The token goes to `out`, or it ends a step of a loop as leave.glsl says. The uniform number of the draw comes from `uniforms` or out of `key`. The key is
// split as mx.random.split does: the first half stays, the second is for this draw.

#define BUFFERS 12
layout(constant_id = 3) const uint COUNTED = 0; // whether there is a histogram: else top_p and top_k hold only of rows of `few`
layout(constant_id = 4) const uint CHECKED = 0; // see sample.glsl
const uint LOGITS = 0u, BEST = 1u, SCRATCH = 2u, SETTINGS = 3u, UNIFORMS = 4u, KEY = 5u, OUT = 6u, NEXT = 7u, POSITION = 8u, LOG = 9u,
           RECENT = 10u, MASK = 11u;
#include "sample.glsl"
#include "end.glsl"
#include "leave.glsl"

void main() {
    uint row = gl_WorkGroupID.y;
    uint token;
    if (!choose(row, gl_WorkGroupID.x, pc.address[SETTINGS], pc.address[UNIFORMS], pc.address[KEY], token) || thread() > 0u) return;
    if (pc.address[OUT] != 0ul) U32s(pc.address[OUT]).v[row] = token;
    leave_token(row, token);
}
