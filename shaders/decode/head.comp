#version 460
// The end of a decoder, as logits.glsl says: `logits`, which may be absent, and best[workgroup]. Logits of `recent` tokens
// are penalised: negative ones times PENALTY, others divided by it. The scratch memory of the sampling kernels, where there are
// any, is cleared here. With ADVANCES the next token is opened but for its embedding.

#define BUFFERS 8
#define ANY_ACCUMULATORS
#define SEQUENCE gl_WorkGroupID.x
#define NORMS_ID 22
#include "decode.glsl"
#include "row_products.glsl"
#define OPEN_ID 19
#include "open.glsl"
#include "include/sample.h"

layout(constant_id = 14) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 15) const uint RECENT = 0;        // tokens in `recent`
layout(constant_id = 16) const uint PENALTY = 0;       // float bits
layout(constant_id = 17) const uint SCRATCH_WORDS = 0; // of a sequence
layout(constant_id = 18) const uint ADVANCES = 0;

const uint STATE = 0u, NORM = 1u, HEAD = 2u, SCALES_BIASES = 3u, LOGITS = 4u, BEST = 5u, SCRATCH = 6u, RECENT_TOKENS = 7u;

#include "logits.glsl"

const uint ROUND_WORDS = ROUND_ROWS / 32u; // a bit for each row of a round of this workgroup
const uint MAX_WORDS = 64u;                // that there is room for: 524,288 rows take no more from 256 workgroups on
shared uint penalised[RECENT == 0u ? 1u : MAX_WORDS];

// Marks this workgroup's rows among the recent tokens; ends before a barrier.
void mark_recent() {
    if (thread() < MAX_WORDS) penalised[thread()] = 0u;
    barrier();
    for (uint i = thread(); i < RECENT; i += THREADS) {
        uint row = U32s(pc.address[RECENT_TOKENS]).v[SEQUENCE * RECENT + i], block = row / ROUND_ROWS;
        uint word = block / gl_NumWorkGroups.y * ROUND_WORDS + row % ROUND_ROWS / 32u;
        if (block % gl_NumWorkGroups.y == gl_WorkGroupID.y && word < MAX_WORDS) atomicOr(penalised[word], 1u << row % 32u);
    }
}

void meanwhile() {
    if (ADVANCES != 0u) open_next();
    if (RECENT > 0u) mark_recent();
    if (gl_WorkGroupID.y == 0u && pc.address[SCRATCH] != 0ul)
        for (uint i = thread(); i < SAMPLE_CLEARED; i += THREADS) U32s(pc.address[SCRATCH]).v[SEQUENCE * SCRATCH_WORDS + i] = 0u;
}

float take_logit(uint row, uint round, float x) {
    if (RECENT > 0u && (penalised[round * ROUND_WORDS + row % ROUND_ROWS / 32u] >> row % 32u & 1u) != 0u) {
        float penalty = uintBitsToFloat(PENALTY);
        x = rounded(x < 0.0 ? x * penalty : m_divide(x, penalty));
    }
    if (pc.address[LOGITS] != 0ul && lane() % RUN_LANES == 0u)
        store_float(pc.address[LOGITS], SEQUENCE * pc.p.vocabulary + row, DTYPE_OUT, x);
    return x;
}

void main() {
    uvec2 best = best_logit();
    if (thread() == 0u) U32x2s(pc.address[BEST]).v[SEQUENCE * gl_NumWorkGroups.y + gl_WorkGroupID.y] = best;
}
