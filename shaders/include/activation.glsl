// Activations of the gate of a feed-forward part. The codes are in the order of ACTIVATIONS in src/schedule/decoder/spec.ts.

#define ACTIVATION_SILU 0u
#define ACTIVATION_GELU 1u
#define ACTIVATION_GELU_TANH 2u
#define ACTIVATION_CLIPPED 3u

#include "math/math.h"

// x * sigmoid(x), x * (1 + erf(x / sqrt(2))) / 2, and the approximation of that by tanh, written with the sigmoid that it is.
float activation(float x, uint which) {
    if (which == ACTIVATION_GELU) return 0.5 * x * (1.0 + m_erf(x * 0.70710678));
    if (which == ACTIVATION_GELU_TANH) return x / (1.0 + exp(-1.5957691 * fma(0.044715 * x * x, x, x)));
    return x / (1.0 + exp(-x));
}

// The value of a gate and a linear part: activation(gate) * up. Clipped units are those of gpt-oss: both are cut at 7, and the
// value is gate * sigmoid(1.702 * gate) * (up + 1). NaN stays.
float gated_value(float gate, float up, uint which) {
    if (which != ACTIVATION_CLIPPED) return activation(gate, which) * up;
    float cut = gate > 7.0 ? 7.0 : gate, linear = up > 7.0 ? 7.0 : up < -7.0 ? -7.0 : up;
    return cut / (1.0 + exp(-1.702 * cut)) * (linear + 1.0);
}
