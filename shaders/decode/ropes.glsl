// How the layers of a dispatch differ. Each has one of ROPES ropes, and with it a window: the last positions that its tokens see. Queries
// may grow with their position. KINDS_ID is the first of the ids of these constants.

layout(constant_id = KINDS_ID) const uint WINDOW_0 = 0u;           // of layers with the first rope; 0 where they see all positions
layout(constant_id = KINDS_ID + 1) const uint WINDOW_1 = 0u;       // of layers with the second one
layout(constant_id = KINDS_ID + 2) const uint GROWTH = 0u;         // float bits; of queries with the logarithm of contexts
layout(constant_id = KINDS_ID + 3) const uint GROWTH_CONTEXT = 0u; // positions of a context; 0 where queries do not grow
layout(constant_id = KINDS_ID + 4) const uint ROPE_DIMS = 0u;      // features of a head that are rotated; 0 for all

#include "include/rope_place.glsl"

// Which rope a layer has.
uint rope_of(uint layer) {
    uint n = layer - pc.p.layer;
    return pc.p.ropes[n / 32u] >> n % 32u & 1u;
}

// The first position that a token at `now` sees in a layer.
uint seen_from(uint layer, uint now) {
    if (WINDOW_0 == 0u && WINDOW_1 == 0u) return 0u;
    uint window = rope_of(layer) == 0u ? WINDOW_0 : WINDOW_1;
    return window != 0u && now >= window ? now + 1u - window : 0u;
}

// The factor of scores of a query at a position.
float score_scale(uint now) {
    if (GROWTH_CONTEXT == 0u) return pc.p.score_scale;
    return pc.p.score_scale * fma(uintBitsToFloat(GROWTH), log(float(now / GROWTH_CONTEXT + 1u)), 1.0);
}
