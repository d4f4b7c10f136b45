#version 460
// delta_systems: what eight tokens of the gated delta rule have in common for all features of a value. S is the state before them. What
// token i adds to it solves a triangular system over the tokens j before it:
//   u_i = b_i (v_i - g_i S k_i) - sum over j < i of b_i D_ij (k_i k_j) u_j
// g_i is the decay of the tokens up to i, D_ij that of the tokens after j up to i. k and q are divided by their lengths where NORMALIZED.
//
// out has a record of 24 floats a token (B, H, blocks, 8). It is row i of the inverse M of the system, row i of N, and the factors in
//   r_i = values_i v_i - keys_i (S k_i),   u = M r,   output_i = queries_i (S q_i) + N_i r,
//   S becomes whole S + sum over i of states_i u_i k_i^T
// in the order values, keys, queries, states, whole. k and q are those of memory here. A token that is masked, or after the last one,
// leaves the state, and its output is 0.
//
// A workgroup of 64 threads has a block of a head: thread (i, j) has the products of tokens i and j. Workgroups: B * H * blocks.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#define PUSH GatedDeltaPush
#include "include/common.glsl"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint KEY_DIM = 128;
layout(constant_id = 2) const uint KEY_HEADS = 1;
layout(constant_id = 3) const uint HEADS = 1;
layout(constant_id = 4) const uint DTYPE_Q = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_K = DTYPE_F32;
layout(constant_id = 6) const uint NORMALIZED = 0;
layout(constant_id = 7) const uint HAS_MASK = 0;
layout(constant_id = 8) const uint GATED = 0;
layout(constant_id = 9) const uint DTYPE_GAMMA = DTYPE_F32;
layout(constant_id = 10) const uint DTYPE_BETA = DTYPE_F32;
layout(constant_id = 11) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 12) const uint DTYPE_LOG_RATE = DTYPE_F32;

#define GAMMA 2
#define BETA 3
#define BIAS 6
#define LOG_RATE 7
#include "ops/recurrent/gates.glsl"

#define TOKENS 8
#define RECORD 24
const uint QUADS = KEY_DIM / 4, STRIDE = QUADS + 1; // rows begin in other banks

shared vec4 keys[TOKENS * STRIDE], queries[TOKENS * STRIDE];
shared float decays[TOKENS], rates[TOKENS], key_scales[TOKENS], query_scales[TOKENS];
shared float lower[TOKENS * TOKENS], inverse[TOKENS * TOKENS], seen[TOKENS * TOKENS];
shared bool lives[TOKENS];

float product_of(uint i, uint j) {
    float sum = 0.0;
    for (uint c = 0; c < QUADS; c++) sum += dot(keys[i * STRIDE + c], keys[j * STRIDE + c]);
    return sum;
}

// Column j of the inverse, from above: it is that of substitution.
void invert_column(uint j) {
    [[unroll]] for (uint i = 0; i < TOKENS; i++) {
        float sum = i == j ? 1.0 : 0.0;
        if (i > j) {
            for (uint l = j; l < i; l++) sum -= lower[i * TOKENS + l] * inverse[l * TOKENS + j];
        }
        inverse[i * TOKENS + j] = sum;
    }
}

void main() {
    uint blocks = (pc.p.tokens + TOKENS - 1) / TOKENS, group = flat_workgroup();
    if (group >= pc.p.batch * HEADS * blocks) return;
    uint block = group % blocks, head = group / blocks % HEADS, batch = group / blocks / HEADS;
    uint key_head = head / (HEADS / KEY_HEADS), thread = gl_LocalInvocationID.x;
    for (uint at = thread; at < TOKENS * QUADS; at += THREADS) {
        uint token = min(block * TOKENS + at / QUADS, pc.p.tokens - 1), to = at / QUADS * STRIDE + at % QUADS;
        int row = int(batch) * pc.p.qk_strides[0] + int(token) * pc.p.qk_strides[1] + int(key_head * KEY_DIM);
        queries[to] = load_quad(element_address(pc.address[0], row, DTYPE_BYTES(DTYPE_Q)), at % QUADS, DTYPE_Q);
        keys[to] = load_quad(element_address(pc.address[1], row, DTYPE_BYTES(DTYPE_K)), at % QUADS, DTYPE_K);
    }
    if (thread < TOKENS) {
        uint token = min(block * TOKENS + thread, pc.p.tokens - 1), at = (batch * pc.p.tokens + token) * HEADS + head;
        bool live = block * TOKENS + thread < pc.p.tokens;
        if (HAS_MASK != 0) live = live && uint(U8s(pc.address[4]).v[batch * pc.p.tokens + token]) != 0;
        lives[thread] = live;
        Gates gates = gates_of(at, head);
        decays[thread] = live ? gates.decay : 1.0;
        rates[thread] = live ? gates.rate : 0.0;
    }
    barrier();
    uint i = thread / TOKENS, j = thread % TOKENS;
    float both = product_of(i, j), query = 0.0, length = 0.0;
    for (uint c = 0; c < QUADS; c++) query += dot(queries[i * STRIDE + c], keys[j * STRIDE + c]);
    if (i == j) {
        for (uint c = 0; c < QUADS; c++) length += dot(queries[i * STRIDE + c], queries[i * STRIDE + c]);
        key_scales[i] = NORMALIZED != 0 ? inversesqrt(both + pc.p.eps) : 1.0;
        query_scales[i] = NORMALIZED != 0 ? inversesqrt((length + pc.p.eps) * float(KEY_DIM)) : 1.0;
    }
    float between = 1.0, before = 1.0, whole = 1.0, after = 1.0; // decays: after j up to i, up to i, of all, after i
    for (uint t = 0; t < TOKENS; t++) {
        float decay = decays[t];
        if (t > j && t <= i) between *= decay;
        if (t <= i) before *= decay;
        else after *= decay;
        whole *= decay;
    }
    barrier();
    lower[thread] = j < i ? rates[i] * between * both * key_scales[i] * key_scales[j] : 0.0;
    seen[thread] = j <= i && lives[i] ? between * query * query_scales[i] * key_scales[j] : 0.0;
    barrier();
    if (thread < TOKENS) invert_column(thread);
    barrier();
    float output_factor = 0.0;
    for (uint l = j; l <= i; l++) output_factor += seen[i * TOKENS + l] * inverse[l * TOKENS + j];
    uint64_t record = pc.address[5] + (uint64_t(group) * TOKENS + i) * RECORD * 4;
    F32s(record).v[j] = inverse[thread];
    F32s(record).v[TOKENS + j] = output_factor;
    float factors[TOKENS] = {
        rates[i], rates[i] * before * key_scales[i], lives[i] ? before * query_scales[i] : 0.0, after * key_scales[i], whole, 0.0, 0.0,
        0.0};
    F32s(record).v[2 * TOKENS + j] = factors[j];
}
