#version 460
// The whole end of a step that takes the largest logit. It makes the logits of logits.glsl, keeps none of them, and
// takes the token. It leaves the loop's new state as sampling/draw.comp does, and opens the next token with its
// embedding.
//
// The workgroup that is done last does what needs all others' results. Workgroups count themselves in the state, and
// none waits.

#define BUFFERS 12
#define ANY_ACCUMULATORS
#define SEQUENCE gl_WorkGroupID.x
#define NORMS_ID 22
#include "decode.glsl"
#include "row_products.glsl"
#define OPEN_ID 19
#include "open.glsl"

layout(constant_id = 14) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 15) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 16) const uint LOG_SIZE = 1; // tokens of the rings
layout(constant_id = 17) const uint RECENT_SIZE = 1;
layout(constant_id = 18) const uint CHECKED = 0; // whether the token is NO_TOKEN where no logit is the largest finite one

const uint STATE = 0u, NORM = 1u, HEAD = 2u, SCALES_BIASES = 3u, BEST = 4u, NEXT = 5u, POSITION = 6u, LOG = 7u, RECENT = 8u, CODES = 9u,
           SCALES = 10u, BIASES = 11u;

#define EMBED_ID 25
#include "embed.glsl"
#include "logits.glsl"
#include "include/sample.h"

layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Left2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Left1s { uint v[]; };

shared bool is_last;

void meanwhile() { open_next(); }
float take_logit(uint row, uint round, float x) { return x; }

// Argmax over workgroups: a 64-bit atomicMax of (ordered logit, ~index) in the state; or without atomics of
// 64 bits in a list.
#if ACCUMULATORS != 1
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Left64s { uint64_t v[]; };

shared uvec2 last_best;

void leave_best(uvec2 best) { atomicMax(Left64s(state_best()).v[0], pack64(uvec2(~best.x, best.y))); }
void take_best() {
    last_best = Left2s(state_best()).v[0];
    last_best.x = ~last_best.x;
    Left2s(state_best()).v[0] = uvec2(0);
}
uvec2 best_left() { return last_best; }
#else
void leave_best(uvec2 best) { Left2s(pc.address[BEST]).v[SEQUENCE * gl_NumWorkGroups.y + gl_WorkGroupID.y] = best; }
void take_best() {}
uvec2 best_left() {
    uvec2 best = NONE;
    for (uint first = thread(); first < gl_NumWorkGroups.y; first += 3u * THREADS) {
        uvec2 left[3]; // loads that do not wait for each other
        [[unroll]] for (uint n = 0; n < 3u; n++)
            left[n] = Left2s(pc.address[BEST]).v[SEQUENCE * gl_NumWorkGroups.y + min(first + n * THREADS, gl_NumWorkGroups.y - 1u)];
        [[unroll]] for (uint n = 0; n < 3u; n++)
            if (better(left[n], best)) best = left[n];
    }
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1)
        best = better_of_lanes(best, m);
    return best_of_4_lanes(best);
}
#endif

// Leaves this workgroup's best; whether all others have.
bool leave(uvec2 best) {
    if (thread() == 0u) {
        leave_best(best);
        memoryBarrierBuffer();
        is_last = atomicAdd(Left1s(state_counter()).v[0], 1u) + 1u == gl_NumWorkGroups.y;
        memoryBarrierBuffer();
        if (is_last) take_best();
    }
    barrier();
    return is_last;
}

// The loop's new state. The counter is zero for the next token.
void advance(uint token, uint next) {
    U32s(state_position()).v[0] = min(uint(max(int(next), 0)), pc.p.capacity - 1u);
    U32s(state_counter()).v[0] = 0u;
    U32s(state_lost()).v[0] = 0u;
    U32s(pc.address[NEXT]).v[SEQUENCE] = token;
    U32s(pc.address[POSITION]).v[SEQUENCE] = next;
    if (pc.address[LOG] != 0ul) U32s(pc.address[LOG]).v[SEQUENCE * LOG_SIZE + next % LOG_SIZE] = token;
    if (pc.address[RECENT] != 0ul) U32s(pc.address[RECENT]).v[SEQUENCE * RECENT_SIZE + next % RECENT_SIZE] = token;
}

void main() {
    uvec2 best = best_logit();
    if (!leave(best)) return;
    uint next = U32s(pc.address[POSITION]).v[SEQUENCE] + 1u;
    uvec2 best_of_all = best_left();
    uint token = CHECKED == 0u || is_finite_key(best_of_all.y) ? best_of_all.x : NO_TOKEN;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        if (quad < QUADS) open_residual(quad, embedding(token, quad));
    }
    clear_read(thread(), THREADS);
    if (thread() == 0u) advance(token, next);
}
