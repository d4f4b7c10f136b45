#version 460
// attention_merge: what several workgroups made of different keys of the same rows (coopmat_attention and paged_attention
// with SPLITS), as one.
//
// A part of a row is its output over the keys that the part saw. Its stats are {largest score, sum of weights}, scores
// in powers of two. out = sum of weight_s * part_s / sum of weight_s with weight_s = sum_s * 2^(score_s - largest score
// of all); 0 if no part saw a key. A part whose sum is 0 is not read. With sinks, of as many heads as the last axis of rows, the sink of a
// head is one more score, which has no value. parts (SPLITS, rows, DIM) float32, stats (SPLITS, rows, 2). A thread makes four
// elements; DIM a multiple of 4.

#define BUFFERS 4
#define PUSH AttentionMergePush
#include "include/common.glsl"
#include "include/vec4.glsl"

layout(constant_id = 1) const uint SPLITS = 2;
layout(constant_id = 2) const uint DIM = 128;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 4) const uint SINKS = 0; // how many there are
layout(constant_id = 5) const uint DTYPE_SINKS = DTYPE_F32;

layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2s { vec2 v[]; };

void main() {
    uint i = flat_thread();
    if (i >= pc.p.rows * (DIM / 4)) return;
    uint row = i / (DIM / 4);
    float most = -1e30, weights = 0.0;
    for (uint s = 0; s < SPLITS; s++) most = max(most, F32x2s(pc.address[1]).v[s * pc.p.rows + row].x);
    if (SINKS != 0) {
        float sink = max(load_float(pc.address[3], row % max(SINKS, 1), DTYPE_SINKS) * 1.4426950408889634, -1e30);
        most = max(most, sink);
        weights = exp2(sink - most);
    }
    vec4 sum = vec4(0.0);
    for (uint s = 0; s < SPLITS; s++) {
        vec2 stat = F32x2s(pc.address[1]).v[s * pc.p.rows + row];
        if (stat.y == 0.0) continue;
        float weight = stat.y * exp2(stat.x - most);
        weights += weight;
        sum += weight * F32x4s(pc.address[0]).v[s * pc.p.rows * (DIM / 4) + i];
    }
    store_quad(pc.address[2], i, DTYPE_OUT, weights == 0.0 ? vec4(0.0) : sum / weights);
}
