#version 460
// gated_delta: the gated delta rule token by token. The state S of a head becomes g S + b (v - g S k) k^T, and the output is S q.
// out has the outputs (B, T, H, V), then the last states (B, H, V, K), all float32. Where states are in slots (n, H, V, K), a sequence at
// position 0 begins with zeros.
//
// A workgroup has THREADS / 8 rows of the state of a head, which stay in registers: eight threads share a row. Sums over K meet in
// shared memory once a token: S q with the new S follows from sums with the old one. The loads of the next token are in flight then.
//   NORMALIZED  q and k are divided by their lengths first, q by the root of K too; eps is added to the squares of the lengths
//   HAS_MASK    a token whose mask (B, T) is 0 leaves the state, and its output is 0
//   SLOTS       where states are: SLOTS_NONE, SLOTS_READ (the last ones go to out) or SLOTS_REPLACED (the last ones replace those before)
// K is a multiple of 32 up to 256, V one of THREADS / 8. Workgroups: B * H * V / (THREADS / 8), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 12
#define PUSH GatedDeltaPush
#include "include/common.glsl"
#include "include/indices.glsl"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint KEY_DIM = 128;
layout(constant_id = 2) const uint VALUE_DIM = 128;
layout(constant_id = 3) const uint KEY_HEADS = 1;
layout(constant_id = 4) const uint HEADS = 1;
layout(constant_id = 5) const uint DTYPE_Q = DTYPE_F32;
layout(constant_id = 6) const uint DTYPE_K = DTYPE_F32;
layout(constant_id = 7) const uint DTYPE_V = DTYPE_F32;
layout(constant_id = 8) const uint NORMALIZED = 0;
layout(constant_id = 9) const uint HAS_MASK = 0;
layout(constant_id = 10) const uint SLOTS = SLOTS_NONE;
layout(constant_id = 11) const uint GATED = 0;
layout(constant_id = 12) const uint DTYPE_GAMMA = DTYPE_F32;
layout(constant_id = 13) const uint DTYPE_BETA = DTYPE_F32;
layout(constant_id = 14) const uint DTYPE_BIAS = DTYPE_F32;
layout(constant_id = 15) const uint DTYPE_LOG_RATE = DTYPE_F32;

#define GAMMA 3
#define BETA 4
#define BIAS 10
#define LOG_RATE 11
#include "ops/recurrent/gates.glsl"

#define LANES 8
const uint ROWS = THREADS / LANES;
const uint QUADS = KEY_DIM / (4 * LANES); // of a row that a thread has

shared vec2 with_state[2][THREADS]; // parts of S k and S q, in turns
shared vec3 alone[2][LANES];        // parts of k k, q q and k q

vec4 state[QUADS], q_next[QUADS], k_next[QUADS];
float v_next;
Gates gates_next;
uint lane, batch, head, row, key_head;

uint64_t row_of(uint64_t address, int strides[2], uint token, uint of_head, uint size, uint dtype) {
    int at = int(batch) * strides[0] + int(token) * strides[1] + int(of_head * size);
    return element_address(address, at, DTYPE_BYTES(dtype));
}

// Where the row of the state of a sequence begins, in bytes.
uint64_t state_at(uint owner) { return ((uint64_t(owner) * HEADS + head) * VALUE_DIM + row) * KEY_DIM * 4; }

void load_token(uint token) {
    uint64_t q = row_of(pc.address[0], pc.p.qk_strides, token, key_head, KEY_DIM, DTYPE_Q);
    uint64_t k = row_of(pc.address[1], pc.p.qk_strides, token, key_head, KEY_DIM, DTYPE_K);
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        q_next[i] = load_quad(q, i * LANES + lane, DTYPE_Q);
        k_next[i] = load_quad(k, i * LANES + lane, DTYPE_K);
    }
    v_next = load_float(row_of(pc.address[2], pc.p.v_strides, token, head, VALUE_DIM, DTYPE_V), row, DTYPE_V);
    uint at = (batch * pc.p.tokens + token) * HEADS + head;
    gates_next = gates_of(at, head);
}

void main() {
    uint blocks = VALUE_DIM / ROWS, group = flat_workgroup();
    if (group >= pc.p.batch * HEADS * blocks) return;
    lane = gl_LocalInvocationID.x % LANES;
    row = group % blocks * ROWS + gl_LocalInvocationID.x / LANES;
    head = group / blocks % HEADS;
    batch = group / blocks / HEADS;
    key_head = head / (HEADS / KEY_HEADS);
    uint owner = SLOTS == SLOTS_NONE ? batch : axis_index(pc.address[8], batch, DTYPE_I32, pc.p.slots);
    uint64_t before = pc.address[5] + state_at(owner), after = before;
    if (SLOTS != SLOTS_REPLACED) after = pc.address[7] + uint64_t(pc.p.batch) * pc.p.tokens * HEADS * VALUE_DIM * 4 + state_at(batch);
    bool begun = SLOTS == SLOTS_NONE || I32s(pc.address[9]).v[batch] > 0;
    [[unroll]] for (uint i = 0; i < QUADS; i++)
        state[i] = begun ? F32x4s(before).v[i * LANES + lane] : vec4(0.0);
    load_token(0);
    for (uint token = 0; token < pc.p.tokens; token++) {
        vec4 q[QUADS], k[QUADS];
        [[unroll]] for (uint i = 0; i < QUADS; i++) {
            q[i] = q_next[i];
            k[i] = k_next[i];
        }
        float v = v_next, decay = gates_next.decay, rate = gates_next.rate;
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
        if (token + 1 < pc.p.tokens) load_token(token + 1);
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
        uint at = ((batch * pc.p.tokens + token) * HEADS + head) * VALUE_DIM + row;
        if (lane == 0) F32s(pc.address[7]).v[at] = live ? result : 0.0;
    }
    [[unroll]] for (uint i = 0; i < QUADS; i++)
        F32x4s(after).v[i * LANES + lane] = state[i];
}
