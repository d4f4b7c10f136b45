#version 460
// rope_table: out[t, i] = factor * (cos a, sin a), a = (t + offset) * scale * frequency(i), float32 (rows, pairs, 2). Pairs from
// rope_dims / 2 on are not rotated: (1, 0).
// These are the angles of all positions of a prompt, computed once for its heads and layers. Or they are those of a
// token of each of several sequences. Row r is t = r mod seq of sequence r / seq. Frequencies and offset as in rope.
//
// A thread a pair: rows * pairs threads.

#define BUFFERS 3
#define PUSH RopeTablePush
#include "include/common.glsl"
#include "include/math/angle.h"

layout(constant_id = 1) const uint OFFSET_MODE = OFFSET_PUSH;
layout(constant_id = 2) const uint HAS_FREQS = 0;

layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2s { vec2 v[]; };

void main() {
    uint pairs = pc.p.pairs, item = flat_thread(), i = item % pairs, row = item / pairs;
    if (row >= pc.p.rows) return;
    int offset = pc.p.offset;
    if (OFFSET_MODE == OFFSET_SCALAR) offset = I32s(pc.address[0]).v[0];
    if (OFFSET_MODE == OFFSET_BATCH) offset = I32s(pc.address[0]).v[row / pc.p.seq];
    if (i >= pc.p.rope_dims / 2u) {
        F32x2s(pc.address[2]).v[item] = vec2(1, 0);
        return;
    }
    Scaled frequency;
    if (HAS_FREQS != 0u) frequency = scaled_reciprocal(scaled_float(F32s(pc.address[1]).v[i]));
    else frequency = rope_frequency(i, pc.p.rope_dims, pc.p.log2_base);
    uint turn = turn_at(int(row % pc.p.seq) + offset, turns_per_position(frequency, pc.p.scale));
    F32x2s(pc.address[2]).v[item] = pc.p.factor * vec2(turn_cos(turn), turn_sin(turn));
}
