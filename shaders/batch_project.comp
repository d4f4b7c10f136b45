#version 460
// residual += W h of eight sequences: h comes in blocks of 8 activations in 16 bits, one to a word of codes.
//
// A workgroup makes 8 rows; a warp multiplies four of them by two sequences, every other 32 units. A unit is what one workgroup of
// the kernels for one sequence multiplies: its words are added up in floats, units in fixed point. Word i of unit u is
// (u / RUN * PARTS + i) * RUN + u % RUN. Scales and biases come packed, [row / 4][group][row % 4].

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#include "batch.glsl"

layout(constant_id = 14) const uint WORDS = 256; // of a row
layout(constant_id = 15) const uint RUN = 16;

const uint STATE = 0u, CODES = 1u, AFFINE = 2u;
const uint UNITS = WORKGROUPS, PARTS = (WORDS + UNITS - 1u) / UNITS;
const uint STEPS = (UNITS + 63u) / 64u * PARTS; // words of a lane
#define PAIR 2u // sequences of a warp

shared uvec2 halves[8u * 8u];

uint fours() { return gl_WorkGroupID.x * 2u + (warp() & 1u); }
uint first_of_warp() { return gl_WorkGroupID.y * ROWS + (warp() >> 1 & 3u) * PAIR; }
uint unit_of(uint step) { return lane() + 32u * (step / PARTS * 2u + (warp() >> 3)); }
uint word_of(uint step) {
    uint unit = unit_of(step);
    return (unit / RUN * PARTS + step % PARTS) * RUN + unit % RUN;
}

// A word of four rows and its block of two sequences, as they lie in memory.
struct Step { uvec4 codes, affine, block[PAIR]; vec2 scale[PAIR]; };

Step load_step(uint step) {
    uint word = min(word_of(step), WORDS - 1u);
    Step s;
    [[unroll]] for (uint r = 0; r < 4u; r++) s.codes[r] = Weights1(pc.address[CODES]).v[(fours() * 4u + r) * WORDS + word];
    s.affine = Weights4(pc.address[AFFINE]).v[fours() * (WORDS * 8u / GROUP) + word * 8u / GROUP];
    [[unroll]] for (uint i = 0; i < PAIR; i++) {
        sequence = min(first_of_warp() + i, SEQUENCES - 1u);
        s.block[i] = U32x4s(in_state(AT_BLOCKS)).v[word];
        s.scale[i] = F32x2s(in_state(AT_SCALES)).v[word];
    }
    return s;
}

vec4 sums[PAIR];
uint64_t total[4u * PAIR];

void use(Step s, uint step) {
    if (unit_of(step) < UNITS && word_of(step) < WORDS && step < STEPS) {
        [[unroll]] for (uint i = 0; i < PAIR; i++) {
            Block b;
            b.high[0] = s.block[i].x;
            b.high[1] = s.block[i].y;
            b.low[0] = s.block[i].z;
            b.low[1] = s.block[i].w;
            b.scale = s.scale[i].x;
            b.sum = s.scale[i].y;
            sums[i] += block_dot4(s.codes, s.affine, b);
        }
    }
    if (step % PARTS + 1u == PARTS) {
        [[unroll]] for (uint i = 0; i < PAIR; i++) {
            [[unroll]] for (uint r = 0; r < 4u; r++) total[4u * i + r] += pack64(sum_of(sums[i][r]));
            sums[i] = vec4(0);
        }
    }
}

void main() {
    [[unroll]] for (uint i = 0; i < 4u * PAIR; i++) total[i] = 0ul;
    [[unroll]] for (uint i = 0; i < PAIR; i++) sums[i] = vec4(0);
    Step a = load_step(0u), b = load_step(1u);
    [[dont_unroll]] for (uint step = 0; step < STEPS; step += 2u) {
        Step next_a = load_step(step + 2u), next_b = load_step(step + 3u);
        use(a, step);
        use(b, step + 1u);
        a = next_a;
        b = next_b;
    }
    // Lane l gets the total of row l / 4 % 4 of sequence l / 16.
    bool up = (lane() & 16u) != 0u;
    [[unroll]] for (uint i = 0; i < 4u; i++) total[i] = (up ? total[4u + i] : total[i]) + lane_xor64(up ? total[i] : total[4u + i], 16u);
    up = (lane() & 8u) != 0u;
    [[unroll]] for (uint i = 0; i < 2u; i++) total[i] = (up ? total[2u + i] : total[i]) + lane_xor64(up ? total[i] : total[2u + i], 8u);
    up = (lane() & 4u) != 0u;
    uint64_t sum = (up ? total[1] : total[0]) + lane_xor64(up ? total[0] : total[1], 4u);
    sum += lane_xor64(sum, 2u);
    sum += lane_xor64(sum, 1u);
    if (warp() >= 8u && (lane() & 3u) == 0u) halves[(warp() & 7u) * 8u + (lane() >> 2)] = unpack32(sum);
    barrier();
    sequence = first_of_warp() + (lane() >> 4);
    if (warp() >= 8u || (lane() & 3u) != 0u || sequence >= SEQUENCES) return;
    uint row = fours() * 4u + ((lane() >> 2) & 3u);
    sum += pack64(halves[warp() * 8u + (lane() >> 2)]) + U64s(in_state(AT_SUMS)).v[row];
    U64s(in_state(AT_SUMS)).v[row] = sum;
    F32s(in_state(AT_X)).v[row] = sum_value(unpack32(sum));
}
