#version 460
// causal_conv: a convolution of each feature by itself over the last tokens, and what it has to remember:
//   out = round(sum over i of inputs[t + i] * weight[f][i] (+ bias[f])) (B, T, F), through silu where SILU,
//   then the last inputs (B, W - 1, F).
// The inputs of a sequence are its `before` (W - 1, F) and its x (T, F). With `counted` (1,) or (B,), only so many tokens of x count, and
// the last inputs are those before the others.
//
// Where the last inputs of sequences are in slots (n, W - 1, F), those of a sequence at position 0 are zeros. SLOTS_REPLACED replaces them.
//
// A thread has four features of four tokens. One more has the last inputs, and the first tokens, which read those before. F is a multiple
// of 4. Sums are float32, and results are rounded to the dtype of x before silu too. Threads: B * (1 + other tokens / 4) * F / 4.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#define PUSH CausalConvPush
#include "include/common.glsl"
#include "include/indices.glsl"
#include "include/math/math.h"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_BEFORE = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 5) const uint SILU = 0;
layout(constant_id = 6) const uint HAS_BIAS = 0;
layout(constant_id = 7) const uint HAS_COUNTED = 0;
layout(constant_id = 8) const uint SLOTS = SLOTS_NONE;

#define MAX_WINDOW 8
#define RUN 4 // tokens of a thread

uint batch, quad, quads, past, owner;
bool begun;
vec4 weights[MAX_WINDOW]; // of four features

float rounded(float x) {
    if (DTYPE_X == DTYPE_F16) return f16_value(f16_bits(x));
    if (DTYPE_X == DTYPE_BF16) return bf16_value(bf16_bits(x));
    return x;
}

// Four features of an input of the sequence.
vec4 input_quad(uint at) {
    if (at >= past) return load_quad(pc.address[1], (batch * pc.p.tokens + at - past) * quads + quad, DTYPE_X);
    if (!begun) return vec4(0.0);
    vec4 x = load_quad(pc.address[0], (owner * past + at) * quads + quad, DTYPE_BEFORE);
    return vec4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

// Up to RUN tokens from `first` on.
void convolve(uint first, uint count) {
    vec4 inputs[RUN + MAX_WINDOW - 1];
    [[unroll]] for (uint i = 0; i < RUN + MAX_WINDOW - 1; i++)
        if (i < count + past) inputs[i] = input_quad(first + i);
    [[unroll]] for (uint t = 0; t < RUN; t++) {
        if (t >= count) return;
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint i = 0; i < MAX_WINDOW; i++)
            if (i < pc.p.window) sum += inputs[t + i] * weights[i];
        [[unroll]] for (uint e = 0; e < 4; e++) {
            if (HAS_BIAS != 0) sum[e] += load_float(pc.address[3], quad * 4 + e, DTYPE_BIAS);
            sum[e] = rounded(sum[e]);
            if (SILU != 0) sum[e] = sum[e] / (1.0 + m_exp(-sum[e]));
        }
        store_quad(pc.address[5], (batch * pc.p.tokens + first + t) * quads + quad, DTYPE_X, sum);
    }
}

// The first tokens, and the last inputs. Those may replace the ones before, so all are read first.
void convolve_early(uint early) {
    uint counted = pc.p.tokens;
    if (HAS_COUNTED != 0) counted = uint(clamp(I32s(pc.address[4]).v[HAS_COUNTED == COUNTED_EACH ? batch : 0], 0, int(pc.p.tokens)));
    vec4 last[MAX_WINDOW - 1];
    [[unroll]] for (uint i = 0; i < MAX_WINDOW - 1; i++)
        if (i < past) last[i] = input_quad(counted + i);
    for (uint i = 0; i < early; i += RUN) convolve(i, min(RUN, early - i));
    uint64_t to = pc.address[SLOTS == SLOTS_REPLACED ? 0 : 5];
    uint first = SLOTS == SLOTS_REPLACED ? owner * past : pc.p.batch * pc.p.tokens + batch * past;
    [[unroll]] for (uint i = 0; i < MAX_WINDOW - 1; i++)
        if (i < past) store_quad(to, (first + i) * quads + quad, DTYPE_X, last[i]);
}

void main() {
    quads = pc.p.features / 4;
    past = pc.p.window - 1;
    uint early = min(past, pc.p.tokens), lines = 1 + (pc.p.tokens - early + RUN - 1) / RUN;
    uint line = flat_thread() / quads;
    quad = flat_thread() % quads;
    batch = line / lines;
    line %= lines;
    if (batch >= pc.p.batch) return;
    owner = SLOTS == SLOTS_NONE ? batch : axis_index(pc.address[6], batch, DTYPE_I32, pc.p.slots);
    begun = SLOTS == SLOTS_NONE || I32s(pc.address[7]).v[batch] > 0;
    [[unroll]] for (uint i = 0; i < MAX_WINDOW; i++)
        if (i < pc.p.window) [[unroll]]
            for (uint e = 0; e < 4; e++) weights[i][e] = load_float(pc.address[2], (quad * 4 + e) * pc.p.window + i, DTYPE_WEIGHT);
    if (line == 0) {
        convolve_early(early);
    } else {
        uint first = early + (line - 1) * RUN;
        convolve(first, min(RUN, pc.p.tokens - first));
    }
}
