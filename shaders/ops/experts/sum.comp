#version 460
// expert_sum: out[row][n] = sum over places of weight * (w[e][n] . x[row][place] + bias), e the expert of that place.
//
// A workgroup makes COLUMNS outputs of a row, its threads striding along k. They add up once, after all places.
// Workgroups: rows * ceil(n / COLUMNS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 7
#define PUSH ExpertsPush
#include "include/common.glsl"
#include "experts.glsl"

float results[COLUMNS];

void main() {
    uint across = (pc.p.n + COLUMNS - 1u) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.rows * across) return;
    uint row = group / across, column0 = group % across * COLUMNS;
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        results[j] = 0.0;
    for (uint place = 0; place < pc.p.chosen; place++) {
        uint expert = expert_of(pc.address[1], row, place);
        float weight = weight_of(pc.address[1], row, place);
        multiply_expert(pc.address[0], row * pc.p.chosen + place, pc.address[2], pc.address[3], pc.address[4], expert, column0);
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            float sum = uintBitsToFloat(sums[j]);
            if (HAS_BIAS == 1 && gl_LocalInvocationID.x == 0u)
                sum += load_float(pc.address[5], expert * pc.p.n + min(column0 + j, pc.p.n - 1u), DTYPE_BIAS);
            results[j] = fma(weight, sum, results[j]);
        }
    }
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        float total = workgroup_sum(results[j]);
        if (gl_LocalInvocationID.x == j % THREADS && column0 + j < pc.p.n)
            store_float(pc.address[6], row * pc.p.n + column0 + j, DTYPE_X, total);
    }
}
