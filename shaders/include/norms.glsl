// How norms of architectures differ. NORMS_ID is the first of the ids of these constants; kernels without it have norms before parts only.

#ifndef VKMX_NORMS
#define VKMX_NORMS
#ifdef NORMS_ID
layout(constant_id = NORMS_ID) const uint POST_NORM = 0u;       // whether what a part adds to the residual is normalised
layout(constant_id = NORMS_ID + 1) const uint NORM_OFFSET = 0u; // float bits: added to the weights of norms
layout(constant_id = NORMS_ID + 2) const uint CLIPS = 0u;       // whether the residual is kept in float16's range
#else
const uint POST_NORM = 0u, NORM_OFFSET = 0u;
#endif

// The weight of a norm, of a stored one.
#define NORM_WEIGHT(w) (NORM_OFFSET == 0u ? (w) : (w) + uintBitsToFloat(NORM_OFFSET))
#endif
