#version 460
// expert_units: out[row][place][n] = unit(gate[e][n] . x[row] + bias, up[e][n] . x[row] + bias), e the expert of that place.
//
// A workgroup makes COLUMNS outputs of one row and place, its threads striding along k. The three functions are those of
// src/array/quantized/experts.ts. Workgroups: rows * chosen * ceil(n / COLUMNS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 11
#define PUSH ExpertsPush
#include "include/common.glsl"
#include "include/activation.glsl"
#include "experts.glsl"

layout(constant_id = 9) const uint UNIT = EXPERT_UNIT_SILU;
layout(constant_id = 10) const uint DTYPE_OUT = DTYPE_F32;

float unit_of(float gate, float up) {
    if (UNIT == EXPERT_UNIT_CLIPPED) return gated_value(gate, up, ACTIVATION_CLIPPED);
    return gated_value(gate, up, UNIT == EXPERT_UNIT_SILU ? ACTIVATION_SILU : ACTIVATION_GELU_TANH);
}

float gates[COLUMNS];

void main() {
    uint across = (pc.p.n + COLUMNS - 1u) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.rows * pc.p.chosen * across) return;
    uint pair = group / across, row = pair / pc.p.chosen, column0 = group % across * COLUMNS;
    uint expert = expert_of(pc.address[1], row, pair % pc.p.chosen);
    multiply_expert(pc.address[0], row, pc.address[2], pc.address[3], pc.address[4], expert, column0);
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        gates[j] = uintBitsToFloat(sums[j]);
    multiply_expert(pc.address[0], row, pc.address[5], pc.address[6], pc.address[7], expert, column0);
    uint ups[COLUMNS];
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        ups[j] = sums[j];
        sums[j] = floatBitsToUint(gates[j]);
    }
    join_sums();
    uint own = min(gl_LocalInvocationID.x, COLUMNS - 1u), column = column0 + own;
    float gate = uintBitsToFloat(joined(own));
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        sums[j] = ups[j];
    join_sums();
    float up = uintBitsToFloat(joined(own));
    if (gl_LocalInvocationID.x >= COLUMNS || column >= pc.p.n) return;
    if (HAS_BIAS == 1) {
        gate += load_float(pc.address[8], expert * pc.p.n + column, DTYPE_BIAS);
        up += load_float(pc.address[9], expert * pc.p.n + column, DTYPE_BIAS);
    }
    store_float(pc.address[10], pair * pc.p.n + column, DTYPE_OUT, unit_of(gate, up));
}
