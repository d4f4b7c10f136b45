#version 460
// The end of a step that looks at more than the largest logit. It chooses the token from what decode/head.comp leaves,
// as sampling/draw.comp does, writes the loop's new state, and opens the next token with its embedding. The grid is
// (slices, sequences).

#define BUFFERS 13
#define ANY_ACCUMULATORS
#define PUSH DecodeDrawPush
#define COLS pc.p.vocabulary
#include "decode.glsl"

layout(constant_id = 14) const uint DTYPE_IN = DTYPE_F32; // of the logits
layout(constant_id = 15) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 16) const uint LOG_SIZE = 1; // tokens of the rings
layout(constant_id = 17) const uint RECENT_SIZE = 1;
layout(constant_id = 18) const uint PER_THREAD = 4; // of a slice, see sample.glsl
layout(constant_id = 19) const uint COUNTED = 0;    // see sampling/draw.comp
layout(constant_id = 20) const uint CHECKED = 0;    // see sample.glsl

const uint STATE = 0u, LOGITS = 1u, BEST = 2u, SCRATCH = 3u, SETTINGS = 4u, KEY = 5u, NEXT = 6u, POSITION = 7u, LOG = 8u, RECENT = 9u,
           CODES = 10u, SCALES = 11u, BIASES = 12u;

#define EMBED_ID 24
#include "embed.glsl"
#define OPEN_ID 21
#include "open.glsl"
#include "sampling/sample.glsl"
#include "sampling/end.glsl"

void main() {
    uint row = SEQUENCE, next = U32s(pc.address[POSITION]).v[row] + 1u;
    uint token;
    if (!choose(row, gl_WorkGroupID.x, pc.address[SETTINGS], 0ul, pc.address[KEY], token)) return;
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
        uint quad = thread() + n * THREADS;
        if (quad < QUADS) open_residual(quad, embedding(token, quad));
    }
    clear_read(thread(), THREADS);
    if (thread() > 0u) return;
    U32s(state_position()).v[0] = min(uint(max(int(next), 0)), pc.p.capacity - 1u);
    U32s(state_lost()).v[0] = 0u;
    U32s(pc.address[NEXT]).v[row] = token;
    U32s(pc.address[POSITION]).v[row] = next;
    if (pc.address[LOG] != 0ul) U32s(pc.address[LOG]).v[row * LOG_SIZE + next % LOG_SIZE] = token;
    if (pc.address[RECENT] != 0ul) U32s(pc.address[RECENT]).v[row * RECENT_SIZE + next % RECENT_SIZE] = token;
}
