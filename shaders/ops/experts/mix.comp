#version 460
// expert_mix: out[row] = sum over places of weight * x[row * chosen + place], in their order, in float32.
//
// A thread makes eight neighbours of a row. cols is a multiple of 8.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH ExpertMixPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE = DTYPE_F32;

#include "include/vec4.glsl"
#include "include/vector.glsl"

void main() {
    uint eights = pc.p.cols / 8, i = flat_thread(), row = i / eights, column = i % eights * 8;
    if (row >= pc.p.rows) return;
    vec4 low = vec4(0.0), high = vec4(0.0);
    for (uint place = 0; place < pc.p.chosen; place++) {
        float weight = load_float(pc.address[1], row * 2u * pc.p.chosen + pc.p.chosen + place, DTYPE_F32);
        vec4 a, b;
        load8(pc.address[0] + uint64_t(row * pc.p.chosen + place) * pc.p.cols * DTYPE_BYTES(DTYPE), column, DTYPE, a, b);
        low = fma(vec4(weight), a, low);
        high = fma(vec4(weight), b, high);
    }
    uint64_t to = pc.address[2] + uint64_t(row) * pc.p.cols * DTYPE_BYTES(DTYPE);
    store_quad(to, column / 4, DTYPE, low);
    store_quad(to, column / 4 + 1, DTYPE, high);
}
