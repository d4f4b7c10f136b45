#version 460
// Rotary position embedding over pairs of features: (y1, y2) = (x1 cos a - x2 sin a, x1 sin a + x2 cos a). Here a = (t
// + offset) * scale * frequency(i). Pair i is (i, i + rope_dims / 2), or (2i, 2i + 1) when TRADITIONAL; features from
// rope_dims on pass through. frequency(i) = base^(-2i / rope_dims), or 1 / freqs[i].
//
// A thread makes one pair or copies one feature: batch * heads * seq * (dims - rope_dims / 2) threads.

#define BUFFERS 4
#define PUSH RopePush
#include "include/common.glsl"
#include "include/math/angle.h"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;
layout(constant_id = 2) const uint TRADITIONAL = 0;
layout(constant_id = 3) const uint OFFSET_MODE = OFFSET_PUSH;
layout(constant_id = 4) const uint HAS_FREQS = 0;

void main() {
    uint pairs = pc.p.rope_dims / 2u;
    uint items = pc.p.dims - pairs;
    uint row = flat_thread() / items;
    uint i = flat_thread() % items;
    uint t = row % pc.p.seq;
    uint head = row / pc.p.seq % pc.p.heads;
    uint b = row / pc.p.seq / pc.p.heads;
    if (b >= pc.p.batch) return;

    int at = int(b) * pc.p.x_strides[0] + int(head) * pc.p.x_strides[1] + int(t) * pc.p.x_strides[2];
    uint64_t x = element_address(pc.address[0], at, DTYPE_BYTES(DTYPE));
    uint to = row * pc.p.dims;
    if (i >= pairs) {
        uint feature = i + pairs;
        store_bits(pc.address[3], to + feature, DTYPE, load_bits(x, feature, DTYPE));
        return;
    }

    int offset = pc.p.offset;
    if (OFFSET_MODE == OFFSET_SCALAR) offset = I32s(pc.address[1]).v[0];
    if (OFFSET_MODE == OFFSET_BATCH) offset = I32s(pc.address[1]).v[b];
    Scaled frequency;
    if (HAS_FREQS != 0u) frequency = scaled_reciprocal(scaled_float(F32s(pc.address[2]).v[i]));
    else frequency = rope_frequency(i, pc.p.rope_dims, pc.p.log2_base);
    uint turn = turn_at(int(t) + offset, turns_per_position(frequency, pc.p.scale));
    float s = turn_sin(turn);
    float c = turn_cos(turn);

    uint first = TRADITIONAL != 0u ? 2u * i : i;
    uint second = TRADITIONAL != 0u ? 2u * i + 1u : i + pairs;
    float x1 = load_float(x, first, DTYPE);
    float x2 = load_float(x, second, DTYPE);
    store_float(pc.address[3], to + first, DTYPE, x1 * c - x2 * s);
    store_float(pc.address[3], to + second, DTYPE, x1 * s + x2 * c);
}
