#version 460
// h = silu(G y) * (U y) of eight sequences with y = x / rms(x) * w, for some features, left in blocks of 8 in 16 bits.
//
// Workgroup (three blocks of 8 features) and (eight sequences); a task is gate and up of two neighbouring features. Scales and
// biases lie as decode_mlp.glsl says.

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#endif
#ifdef MATRICES
#define BUFFERS 4
#else
#define BUFFERS 5
#endif
#include "batch.glsl"

#ifdef MATRICES
const uint STATE = 0u, NORM = 1u, AFFINE = 2u, CODES = 3u;
#else
const uint STATE = 0u, NORM = 1u, AFFINE = 2u, GATE = 3u, UP = 4u;
#endif
const uint FEATURE_BLOCKS = INTERMEDIATE / 8u;
#define BLOCKS 3u // of 8 features

uint feature_of(uint task, uint pair) { return min(2u * task + pair, INTERMEDIATE - 1u); }

#ifdef MATRICES
uint64_t fragments_of(uint block) { return pc.address[CODES] + uint64_t(min(block, FEATURE_BLOCKS - 1u)) * 8192ul; }
#else
uint64_t weight_row(uint task, uint r) {
    return pc.address[(r & 1u) == 0u ? GATE : UP] + uint64_t(feature_of(task, r >> 1) * CHUNKS) * 16ul;
}
#endif

uvec4 affine_of(uint task, uint chunk) {
    uint group = chunk * 32u / GROUP;
    return uvec4(Weights2(pc.address[AFFINE]).v[feature_of(task, 0u) * GROUPS + group], Weights2(pc.address[AFFINE]).v[feature_of(task, 1u) * GROUPS + group]);
}

#include "batch_norm.glsl"

float gated(float gate, float up) { return gate / (1.0 + exp(-gate)) * up; }

void main() {
    take_sequence();
    uint first = gl_WorkGroupID.x * BLOCKS;
    Weights w0 = load_weights(first), w1 = load_weights(first + 1u), w2 = load_weights(first + 2u);
    normalise(pc.address[NORM]);
    partial[warp() * 32u + lane()] = warp_sums(w0);
    partial[(NORM_WARPS + warp()) * 32u + lane()] = warp_sums(w1);
    partial[(2u * NORM_WARPS + warp()) * 32u + lane()] = warp_sums(w2);
    barrier();
    // Four lanes hold a block, two features each.
    uint own = min(warp(), BLOCKS - 1u), block = first + own;
    vec4 x = sum_of_warps(own * NORM_WARPS * 32u + lane()) * norm_scale();
    float h0 = gated(x.x, x.y), h1 = gated(x.z, x.w);
    float most = max(abs(h0), abs(h1)), sum = h0 + h1;
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        most = max(most, lane_xor(most, m));
        sum += lane_xor(sum, m);
    }
    most = max(most, 1e-20);
    uint k0 = floatBitsToUint(fma(h0, STEPS_16BIT / most, WHOLE)), k1 = floatBitsToUint(fma(h1, STEPS_16BIT / most, WHOLE));
    uint shift = 8u * (lane() & 3u);
    uvec4 words = uvec4(((k0 + 128u) >> 8) & 255u, ((k1 + 128u) >> 8) & 255u, k0 & 255u, k1 & 255u) << shift;
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1)
        [[unroll]] for (uint i = 0; i < 4u; i++) words[i] |= lane_xor(words[i], m);
    if (warp() < BLOCKS && (lane() & 3u) == 0u && block < FEATURE_BLOCKS && sequence_of_lane() < SEQUENCES) {
        Shared4(in_state(AT_BLOCKS)).v[block] = words;
        F32x2s(in_state(AT_SCALES)).v[block] = vec2(most * (1.0 / STEPS_16BIT), sum);
    }
}
