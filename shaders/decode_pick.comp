#version 460
// token = argmax over what decode_head left per workgroup. One workgroup. It also ends a step of a loop where its buffers are
// bound: the token goes to `next`, the position advances, and log[position % count] = token.

#define BUFFERS 5
#define PUSH DecodePickPush
#include "common.glsl"

const uint BEST = 0u, TOKEN = 1u, NEXT = 2u, POSITION = 3u, LOG = 4u;

layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };
shared uvec2 all_best[THREADS];

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

void main() {
    uint t = gl_LocalInvocationID.x;
    uvec2 best = uvec2(0xffffffffu, 0u);
    for (uint i = t; i < pc.p.count; i += THREADS) {
        uvec2 other = U32x2s(pc.address[BEST]).v[i];
        if (better(other, best)) best = other;
    }
    all_best[t] = best;
    barrier();
    for (uint half_ = THREADS / 2u; half_ > 0u; half_ /= 2u) {
        if (t < half_ && better(all_best[t + half_], all_best[t])) all_best[t] = all_best[t + half_];
        barrier();
    }
    if (t > 0u) return;
    uint token = all_best[0].x;
    if (pc.address[TOKEN] != 0ul) U32s(pc.address[TOKEN]).v[0] = token;
    if (pc.address[NEXT] != 0ul) U32s(pc.address[NEXT]).v[0] = token;
    if (pc.address[POSITION] != 0ul) {
        uint now = U32s(pc.address[POSITION]).v[0] + 1u;
        U32s(pc.address[POSITION]).v[0] = now;
        if (pc.address[LOG] != 0ul) U32s(pc.address[LOG]).v[now % pc.p.log_size] = token;
    }
}
