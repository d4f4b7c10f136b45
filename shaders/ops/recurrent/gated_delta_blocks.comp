#version 460
// gated_delta_blocks: the gated delta rule of gated_delta.comp, eight tokens at a time, for long runs of tokens. delta_systems.comp has the
// records of a block that it reads.
//
// A workgroup has THREADS / 4 rows of the state of a head, which stay in registers: eight threads share two rows. For a block the products
// of the state with all keys and queries come first. Their sums over K meet in shuffles, by which each thread gets those of one token.
// A thread so has the values, outputs and records of one token in eight. What tokens add to the state goes through shared memory. The keys
// and queries of the next block are on their way meanwhile.
//
// Threads that read the same keys are neighbours: their loads from shared memory are one. SLOTS is that of gated_delta.comp. K is a multiple
// of 32 up to 256, V one of THREADS / 4. Workgroups: B * H * V / (THREADS / 4), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define BUFFERS 8
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
layout(constant_id = 8) const uint SLOTS = SLOTS_NONE;
layout(constant_id = 9) const uint SUBGROUP = 32;

#define TOKENS 8
#define LANES 8 // threads that share rows: one for each token of a block
#define OWN 2   // rows that they share
#define RECORD_QUADS 6
const uint ROWS = THREADS / LANES * OWN;
const uint SPAN = SUBGROUP / LANES;       // neighbours with one lane
const uint QUADS = KEY_DIM / (4 * LANES); // of a row that a thread has
const uint ROW_QUADS = KEY_DIM / 4;
const uint LOADS = (TOKENS * ROW_QUADS + THREADS - 1) / THREADS;

shared vec4 keys[2][TOKENS * ROW_QUADS], queries[2][TOKENS * ROW_QUADS]; // of two blocks in turns
shared vec4 rests[ROWS * 2], added[ROWS * 2];                            // eight tokens of each row

vec4 state[OWN][QUADS], q_next[LOADS], k_next[LOADS], record_next[RECORD_QUADS];
float v_next[OWN];
uint lane, batch, head, key_head, row;

uint64_t row_of(uint64_t address, int strides[2], uint token, uint of_head, uint size, uint dtype) {
    int at = int(batch) * strides[0] + int(token) * strides[1] + int(of_head * size);
    return element_address(address, at, DTYPE_BYTES(dtype));
}

// Where the rows of the state of a sequence begin, in bytes.
uint64_t state_at(uint owner) { return ((uint64_t(owner) * HEADS + head) * VALUE_DIM + row) * KEY_DIM * 4; }

void load_block(uint block, uint blocks) {
    uint last = pc.p.tokens - 1;
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint at = i * THREADS + gl_LocalInvocationID.x, token = min(block * TOKENS + at / ROW_QUADS, last), quad = at % ROW_QUADS;
        if (at >= TOKENS * ROW_QUADS) break;
        q_next[i] = load_quad(row_of(pc.address[0], pc.p.qk_strides, token, key_head, KEY_DIM, DTYPE_Q), quad, DTYPE_Q);
        k_next[i] = load_quad(row_of(pc.address[1], pc.p.qk_strides, token, key_head, KEY_DIM, DTYPE_K), quad, DTYPE_K);
    }
    uint64_t value = row_of(pc.address[2], pc.p.v_strides, min(block * TOKENS + lane, last), head, VALUE_DIM, DTYPE_V);
    [[unroll]] for (uint r = 0; r < OWN; r++)
        v_next[r] = load_float(value, row + r, DTYPE_V);
    uint64_t record = pc.address[3] + (uint64_t((batch * HEADS + head) * blocks + block) * TOKENS + lane) * RECORD_QUADS * 16;
    [[unroll]] for (uint i = 0; i < RECORD_QUADS; i++)
        record_next[i] = F32x4s(record).v[i];
}

// The sums over lanes, of which each lane gets that of its token.
float sum_of_lane(float x[TOKENS]) {
    float four[4], two[2];
    bool high = (lane & 4u) != 0;
    [[unroll]] for (uint i = 0; i < 4; i++)
        four[i] = (high ? x[i + 4] : x[i]) + subgroupShuffleXor(high ? x[i] : x[i + 4], 4 * SPAN);
    high = (lane & 2u) != 0;
    [[unroll]] for (uint i = 0; i < 2; i++)
        two[i] = (high ? four[i + 2] : four[i]) + subgroupShuffleXor(high ? four[i] : four[i + 2], 2 * SPAN);
    high = (lane & 1u) != 0;
    return (high ? two[1] : two[0]) + subgroupShuffleXor(high ? two[0] : two[1], SPAN);
}

void main() {
    uint parts = VALUE_DIM / ROWS, group = flat_workgroup(), blocks = (pc.p.tokens + TOKENS - 1) / TOKENS;
    if (group >= pc.p.batch * HEADS * parts) return;
    uint of_subgroup = gl_LocalInvocationID.x % SUBGROUP;
    lane = of_subgroup / SPAN;
    uint own = (gl_LocalInvocationID.x / SUBGROUP * SPAN + of_subgroup % SPAN) * OWN; // the first of its rows in the workgroup
    row = group % parts * ROWS + own;
    head = group / parts % HEADS;
    batch = group / parts / HEADS;
    key_head = head / (HEADS / KEY_HEADS);
    uint owner = SLOTS == SLOTS_NONE ? batch : axis_index(pc.address[6], batch, DTYPE_I32, pc.p.slots);
    uint64_t before = pc.address[4] + state_at(owner), after = before;
    if (SLOTS != SLOTS_REPLACED) after = pc.address[5] + uint64_t(pc.p.batch) * pc.p.tokens * HEADS * VALUE_DIM * 4 + state_at(batch);
    bool begun = SLOTS == SLOTS_NONE || I32s(pc.address[7]).v[batch] > 0;
    [[unroll]] for (uint r = 0; r < OWN; r++) [[unroll]]
        for (uint i = 0; i < QUADS; i++) state[r][i] = begun ? F32x4s(before).v[r * ROW_QUADS + i * LANES + lane] : vec4(0.0);
    load_block(0, blocks);
    for (uint block = 0; block < blocks; block++) {
        uint turn = block & 1u;
        [[unroll]] for (uint i = 0; i < LOADS; i++) {
            uint at = i * THREADS + gl_LocalInvocationID.x;
            if (at >= TOKENS * ROW_QUADS) break;
            queries[turn][at] = q_next[i];
            keys[turn][at] = k_next[i];
        }
        vec4 record[RECORD_QUADS] = record_next;
        float v[OWN] = v_next;
        barrier();
        load_block(min(block + 1, blocks - 1), blocks);
        float with_keys[OWN][TOKENS], with_queries[OWN][TOKENS];
        [[unroll]] for (uint t = 0; t < TOKENS; t++) {
            [[unroll]] for (uint r = 0; r < OWN; r++)
                with_keys[r][t] = with_queries[r][t] = 0.0;
            [[unroll]] for (uint i = 0; i < QUADS; i++) {
                vec4 k = keys[turn][t * ROW_QUADS + i * LANES + lane], q = queries[turn][t * ROW_QUADS + i * LANES + lane];
                [[unroll]] for (uint r = 0; r < OWN; r++) {
                    with_keys[r][t] += dot(state[r][i], k);
                    with_queries[r][t] += dot(state[r][i], q);
                }
            }
        }
        vec4 factors = record[4];
        float read[OWN];
        [[unroll]] for (uint r = 0; r < OWN; r++) {
            read[r] = factors.z * sum_of_lane(with_queries[r]);
            rests[(own + r) * 2 + lane / 4][lane % 4] = factors.x * v[r] - factors.y * sum_of_lane(with_keys[r]);
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        uint token = block * TOKENS + lane;
        uint64_t to = pc.address[5] + (uint64_t((batch * pc.p.tokens + token) * HEADS + head) * VALUE_DIM + row) * 4;
        [[unroll]] for (uint r = 0; r < OWN; r++) {
            vec4 low = rests[(own + r) * 2], high = rests[(own + r) * 2 + 1];
            added[(own + r) * 2 + lane / 4][lane % 4] = factors.w * (dot(record[0], low) + dot(record[1], high));
            float result = read[r] + dot(record[2], low) + dot(record[3], high);
            if (token < pc.p.tokens) F32s(to).v[r] = result;
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        float whole = record[5].x;
        [[unroll]] for (uint r = 0; r < OWN; r++) [[unroll]]
            for (uint i = 0; i < QUADS; i++) state[r][i] *= whole;
        [[unroll]] for (uint half_block = 0; half_block < 2; half_block++) {
            vec4 by[OWN];
            [[unroll]] for (uint r = 0; r < OWN; r++)
                by[r] = added[(own + r) * 2 + half_block];
            [[unroll]] for (uint t = 0; t < 4; t++) [[unroll]]
                for (uint i = 0; i < QUADS; i++) {
                    vec4 k = keys[turn][(half_block * 4 + t) * ROW_QUADS + i * LANES + lane];
                    [[unroll]] for (uint r = 0; r < OWN; r++)
                        state[r][i] += by[r][t] * k;
                }
        }
    }
    [[unroll]] for (uint r = 0; r < OWN; r++) [[unroll]]
        for (uint i = 0; i < QUADS; i++) F32x4s(after).v[r * ROW_QUADS + i * LANES + lane] = state[r][i];
}
