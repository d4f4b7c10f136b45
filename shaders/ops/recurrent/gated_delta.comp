#version 460
// gated_delta: the gated delta rule token by token. The state S of a head becomes g S + b (v - g S k) k^T, and the output is S q.
// out has the outputs (B, T, H, V), then the last states (B, H, V, K), all float32.
//
// A workgroup has THREADS / 8 rows of the state of a head, which stay in registers: eight threads share a row. Sums over K meet in
// shared memory once a token: S q with the new S follows from sums with the old one. The loads of the next token are in flight then.
//   NORMALIZED  q and k are divided by their lengths first, q by the root of K too; eps is added to the squares of the lengths
//   HAS_MASK    a token whose mask (B, T) is 0 leaves the state, and its output is 0
// K is a multiple of 32 up to 256, V one of THREADS / 8. Workgroups: B * H * V / (THREADS / 8), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 8
#define PUSH GatedDeltaPush
#include "include/common.glsl"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint KEY_DIM = 128;
layout(constant_id = 2) const uint DTYPE_Q = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_K = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_V = DTYPE_F32;
layout(constant_id = 5) const uint NORMALIZED = 0;
layout(constant_id = 6) const uint HAS_MASK = 0;

#define LANES 8
const uint ROWS = THREADS / LANES;
const uint QUADS = KEY_DIM / (4 * LANES); // of a row that a thread has

shared vec2 with_state[2][THREADS]; // parts of S k and S q, in turns
shared vec3 alone[2][LANES];        // parts of k k, q q and k q

vec4 state[QUADS], q_next[QUADS], k_next[QUADS];
float v_next, decay_next, rate_next;
uint lane, batch, head, row, key_head;

uint64_t row_of(uint64_t address, int strides[3], uint token, uint of_head, uint dtype) {
    int at = int(batch) * strides[0] + int(token) * strides[1] + int(of_head) * strides[2];
    return element_address(address, at, DTYPE_BYTES(dtype));
}

void load_token(uint token) {
    uint64_t q = row_of(pc.address[0], pc.p.q_strides, token, key_head, DTYPE_Q);
    uint64_t k = row_of(pc.address[1], pc.p.k_strides, token, key_head, DTYPE_K);
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        q_next[i] = load_quad(q, i * LANES + lane, DTYPE_Q);
        k_next[i] = load_quad(k, i * LANES + lane, DTYPE_K);
    }
    v_next = load_float(row_of(pc.address[2], pc.p.v_strides, token, head, DTYPE_V), row, DTYPE_V);
    uint at = (batch * pc.p.tokens + token) * pc.p.heads + head;
    decay_next = F32s(pc.address[3]).v[at];
    rate_next = F32s(pc.address[4]).v[at];
}

void main() {
    uint blocks = pc.p.values / ROWS, group = flat_workgroup();
    if (group >= pc.p.batch * pc.p.heads * blocks) return;
    lane = gl_LocalInvocationID.x % LANES;
    row = group % blocks * ROWS + gl_LocalInvocationID.x / LANES;
    head = group / blocks % pc.p.heads;
    batch = group / blocks / pc.p.heads;
    key_head = head / (pc.p.heads / pc.p.key_heads);
    uint64_t row_start = (uint64_t(batch * pc.p.heads + head) * pc.p.values + row) * KEY_DIM;
    uint64_t outputs = uint64_t(pc.p.batch) * pc.p.tokens * pc.p.heads * pc.p.values;
    [[unroll]] for (uint i = 0; i < QUADS; i++)
        state[i] = F32x4s(pc.address[5] + row_start * 4).v[i * LANES + lane];
    load_token(0);
    for (uint token = 0; token < pc.p.tokens; token++) {
        vec4 q[QUADS], k[QUADS];
        [[unroll]] for (uint i = 0; i < QUADS; i++) {
            q[i] = q_next[i];
            k[i] = k_next[i];
        }
        float v = v_next, decay = decay_next, rate = rate_next;
        vec2 mine = vec2(0.0);
        [[unroll]] for (uint i = 0; i < QUADS; i++)
            mine += vec2(dot(state[i], k[i]), dot(state[i], q[i]));
        uint turn = token & 1u;
        with_state[turn][gl_LocalInvocationID.x] = mine;
        if (gl_LocalInvocationID.x < LANES) {
            vec3 own = vec3(0.0);
            [[unroll]] for (uint i = 0; i < QUADS; i++)
                own += vec3(dot(k[i], k[i]), dot(q[i], q[i]), dot(k[i], q[i]));
            alone[turn][lane] = own;
        }
        load_token(min(token + 1, pc.p.tokens - 1));
        barrier();
        vec2 read = vec2(0.0);
        vec3 both = vec3(0.0);
        [[unroll]] for (uint i = 0; i < LANES; i++) {
            read += with_state[turn][gl_LocalInvocationID.x - lane + i];
            both += alone[turn][i];
        }
        float k_scale = 1.0, q_scale = 1.0;
        if (NORMALIZED != 0) {
            k_scale = inversesqrt(both.x + pc.p.eps);
            q_scale = inversesqrt((both.y + pc.p.eps) * float(KEY_DIM));
        }
        bool live = HAS_MASK == 0 || uint(U8s(pc.address[6]).v[batch * pc.p.tokens + token]) != 0;
        if (!live) decay = 1.0, rate = 0.0;
        float update = rate * (v - decay * read.x * k_scale);
        float result = decay * read.y * q_scale + update * both.z * k_scale * q_scale;
        update *= k_scale;
        [[unroll]] for (uint i = 0; i < QUADS; i++)
            state[i] = decay * state[i] + update * k[i];
        uint at = ((batch * pc.p.tokens + token) * pc.p.heads + head) * pc.p.values + row;
        if (lane == 0) F32s(pc.address[7]).v[at] = live ? result : 0.0;
    }
    [[unroll]] for (uint i = 0; i < QUADS; i++)
        F32x4s(pc.address[7] + (outputs + row_start) * 4).v[i * LANES + lane] = state[i];
}
