#version 460
// expert_sum: out[row][n] = sum over places of weight * (w[e][n] . x[row][place] + bias), e the expert of that place.
//
// A workgroup makes COLUMNS outputs of a row. Its threads go along the k of all places, one after the other, so that
// weights of all experts are on their way at once. Dense matrices go place by place.
// Workgroups: rows * ceil(n / COLUMNS), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 7
#define PUSH ExpertsPush
#include "include/common.glsl"
#include "experts.glsl"

layout(constant_id = 9) const uint DTYPE_OUT = DTYPE_F32;

float results[COLUMNS];

// Adds the sums of a place.
void add_place(uint row, uint place) {
    float weight = weight_of(pc.address[1], row, place);
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        results[j] = fma(weight, uintBitsToFloat(sums[j]), results[j]);
}

void add_quantized(uint row, uint column0) {
    uint steps = (pc.p.k + DEPTH_AT_ONCE - 1u) / DEPTH_AT_ONCE;
    for (uint step = gl_LocalInvocationID.x; step < steps * pc.p.chosen; step += THREADS) {
        uint place = step / steps, expert = expert_of(pc.address[1], row, place);
        clear_sums();
        add_depth(row_of(pc.address[0], row * pc.p.chosen + place), expert_matrix(pc.address[2], pc.address[3], pc.address[4], expert), 0,
                  column0, step % steps * DEPTH_AT_ONCE);
        add_place(row, place);
    }
}

void add_dense(uint row, uint column0) {
    for (uint place = 0; place < pc.p.chosen; place++) {
        clear_sums();
        multiply_dense(row_of(pc.address[0], row * pc.p.chosen + place),
                       expert_numbers(pc.address[2], expert_of(pc.address[1], row, place)), column0);
        add_place(row, place);
    }
}

void main() {
    uint across = (pc.p.n + COLUMNS - 1u) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.rows * across) return;
    uint row = group / across, column0 = group % across * COLUMNS;
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        results[j] = 0.0;
    if (MODE == MODE_DENSE) add_dense(row, column0);
    else add_quantized(row, column0);
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        sums[j] = floatBitsToUint(results[j]);
    join_sums();
    uint column = column0 + gl_LocalInvocationID.x;
    if (gl_LocalInvocationID.x >= COLUMNS || column >= pc.p.n) return;
    float total = uintBitsToFloat(joined(gl_LocalInvocationID.x));
    for (uint place = 0; HAS_BIAS == 1 && place < pc.p.chosen; place++) {
        float bias = load_float(pc.address[5], expert_of(pc.address[1], row, place) * pc.p.n + column, DTYPE_BIAS);
        total = fma(weight_of(pc.address[1], row, place), bias, total);
    }
    store_float(pc.address[6], row * pc.p.n + column, DTYPE_OUT, total);
}
