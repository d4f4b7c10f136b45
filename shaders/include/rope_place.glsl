// Which features of a head are rotated together, in quads of four features. A head of which all features are rotated has
// pairs half a head apart. Of others the first ROPE_DIMS features are rotated, a multiple of 8. Pairs are half of those
// apart, and the features that are left are pairs whose angle is 0.
//
// Kernels count quads by pairs: i of the first members has its partners in i + HEAD_DIM / 8. ROPE_DIMS is 0 where all
// features are rotated.

#define ROPE_HALF (HEAD_DIM / 8u)
#define ROPE_ROTATED (ROPE_DIMS / 8u)

// The quad of a head that has the members `i`.
uint rope_quad(uint i) {
    if (ROPE_DIMS == 0u) return i;
    return i < ROPE_HALF ? i < ROPE_ROTATED ? i : i + ROPE_ROTATED : i < ROPE_HALF + ROPE_ROTATED ? i - ROPE_HALF + ROPE_ROTATED : i;
}

// The members that a quad of a head has.
uint rope_members(uint quad) {
    if (ROPE_DIMS == 0u) return quad;
    if (quad < 2u * ROPE_ROTATED) return quad < ROPE_ROTATED ? quad : quad - ROPE_ROTATED + ROPE_HALF;
    return quad < ROPE_HALF + ROPE_ROTATED ? quad - ROPE_ROTATED : quad;
}
