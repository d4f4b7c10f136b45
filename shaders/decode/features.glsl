// Features in which the layers of architectures differ, and the places of a layer's norm weights and biases.

#include "include/activation.glsl"
#include "include/norms.glsl"

const uint ONE = 0x3f800000u;

layout(constant_id = 14) const uint HEAD_NORM = 1;        // whether heads of q and k are normalised
layout(constant_id = 15) const uint QKV_BIAS = 0;         // whether q, k and v have biases
layout(constant_id = 16) const uint ACTIVATION = 0;       // of the gate, as activation.glsl has them
layout(constant_id = 17) const uint RESIDUAL_SCALE = ONE; // float bits: the factor of what a part adds to the residual

// ---- norm weights and biases of a layer, contiguous: norm, norm before mlp, norms of q and k heads, biases of q, k, v ----
//
// With POST_NORM the norm after the mlp of the layer before comes first, and the norm after attention comes after those two.

const uint WEIGHT_BYTES = DTYPE_W == DTYPE_F32 ? 4u : 2u;
const uint NORM_BYTES = HIDDEN * WEIGHT_BYTES;
const uint AT_NORM = POST_NORM * NORM_BYTES;
const uint AT_MLP_NORM = AT_NORM + NORM_BYTES;
const uint AT_AFTER_NORM = AT_MLP_NORM + NORM_BYTES;
const uint AT_Q_NORM = AT_AFTER_NORM + POST_NORM * NORM_BYTES;
const uint AT_K_NORM = AT_Q_NORM + HEAD_DIM * WEIGHT_BYTES;
const uint AT_QKV_BIAS = AT_Q_NORM + HEAD_NORM * 2u * HEAD_DIM * WEIGHT_BYTES;
