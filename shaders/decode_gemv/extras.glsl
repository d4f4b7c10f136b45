// What layers of some families have beside their matrices and norms, as the bits of EXTRAS. They are with the norm weights and biases of
// decode/features.glsl, after those, each from a multiple of four numbers on:
//
//   o bias     (HIDDEN,), of the output projection
//   sinks      (query heads,): one more score of each, which has no value
//   of experts biases of the router (EXPERTS,), of gate and up (EXPERTS, EXPERT_SIZE) each, and of down (EXPERTS, HIDDEN)

#ifdef RECURRENT
const uint EXTRAS = 0u;
#else
layout(constant_id = 37) const uint EXTRAS = 0u;
#endif

#define HAS_O_BIAS ((EXTRAS & 1u) != 0u)
#define HAS_SINKS ((EXTRAS & 2u) != 0u)
#define HAS_EXPERT_BIASES ((EXTRAS & 4u) != 0u)

#define PADDED_BYTES(count) (((count) + 3u) / 4u * 4u * WEIGHT_BYTES)
const uint AT_OUTPUT_NORM = AT_MLP_NORM + NORM_BYTES; // of recurrent layers, which have no norms of heads and no biases
const uint AT_O_BIAS = AT_QKV_BIAS + QKV_BIAS * (ATTENDED_ROWS + 2u * ALL_KV) * WEIGHT_BYTES;
const uint AT_SINKS = AT_O_BIAS + (EXTRAS & 1u) * HIDDEN * WEIGHT_BYTES;
const uint AT_ROUTER_BIAS = AT_SINKS + (EXTRAS >> 1 & 1u) * PADDED_BYTES(KV_HEADS * HEADS);
const uint AT_GATE_BIAS = AT_ROUTER_BIAS + PADDED_BYTES(STACKED);
const uint AT_UP_BIAS = AT_GATE_BIAS + PADDED_BYTES(STACKED * EXPERT_SIZE);
const uint AT_DOWN_BIAS = AT_UP_BIAS + PADDED_BYTES(STACKED * EXPERT_SIZE);

// Number i of those at `at`.
float extra(uint at, uint i) { return load_float(ADDRESS(NORMS) + at, i, DTYPE_W); }

// The biases of down that the chosen experts add to row `row` of the residual, times their weights.
float down_bias(uint row) {
    float x = 0.0;
    for (uint slot = 0u; slot < CHOSEN; slot++) x = fma(expert_weight(slot), extra(AT_DOWN_BIAS, stacked(slot * HIDDEN + row, HIDDEN)), x);
    return x;
}
