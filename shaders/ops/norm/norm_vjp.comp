#version 460
// The gradient of rows through their norm. With d = x - mean (CENTERED) or d = x, s = 1 / sqrt(mean of d^2 + eps), n =
// d s and g = cotangent * weight:
//   out[row, i] = s (g[i] - n[i] * mean of g n [- mean of g])
//
// One workgroup a row. x and the cotangent of HELD quads of a thread stay in registers; others are read again. Rows
// whose quads are not aligned go element by element. float32 inside.

#define BUFFERS 4
#define PUSH RmsNormPush
#include "include/common.glsl"
#include "include/quad.glsl"

layout(constant_id = 1) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_C = DTYPE_F32;
layout(constant_id = 4) const uint HAS_WEIGHT = 1;
layout(constant_id = 5) const uint CENTERED = 0;

const uint HELD = 4u;

uint64_t x_row, c_row, out_row;

vec4 quad_at(uint64_t row, uint q, uint dtype) {
    return uintBitsToFloat(load_quad_bits(row + uint64_t(4u * q) * DTYPE_BYTES(dtype), dtype));
}

// The cotangent of the norm without its weight.
float weighted(float c, uint i) { return HAS_WEIGHT != 0u ? c * load_float(pc.address[1], i, DTYPE_WEIGHT) : c; }
vec4 weighted_quad(uint q) {
    vec4 c = quad_at(c_row, q, DTYPE_C);
    [[unroll]] for (uint e = 0; e < 4u; e++)
        c[e] = weighted(c[e], 4u * q + e);
    return c;
}

float total(vec4 x) { return (x.x + x.y) + (x.z + x.w); }

void main() {
    uint row = flat_workgroup(), t = gl_LocalInvocationID.x, cols = pc.p.cols;
    if (row >= pc.p.rows) return;
    x_row = pc.address[0] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_X);
    c_row = pc.address[2] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_C);
    out_row = pc.address[3] + uint64_t(row) * cols * DTYPE_BYTES(DTYPE_X);
    bool aligned = quad_aligned(x_row, DTYPE_X) && quad_aligned(c_row, DTYPE_C) && quad_aligned(out_row, DTYPE_X);
    uint quads = aligned ? cols / 4u : 0u;

    vec4 xs[HELD], gs[HELD];
    if (quads > 0u) {
        [[unroll]] for (uint u = 0; u < HELD; u++) {
            uint q = min(t + u * THREADS, quads - 1u);
            xs[u] = quad_at(x_row, q, DTYPE_X);
            gs[u] = weighted_quad(q);
        }
    }
    float mean = 0.0;
    if (CENTERED != 0u) {
        float sum = 0.0;
        [[unroll]] for (uint u = 0; u < HELD; u++)
            if (t + u * THREADS < quads) sum += total(xs[u]);
        for (uint q = t + HELD * THREADS; q < quads; q += THREADS) sum += total(quad_at(x_row, q, DTYPE_X));
        for (uint i = 4u * quads + t; i < cols; i += THREADS) sum += load_float(x_row, i, DTYPE_X);
        mean = workgroup_sum(sum) / float(cols);
    }

    float squares = 0.0, products = 0.0, cotangents = 0.0;
    [[unroll]] for (uint u = 0; u < HELD; u++) {
        xs[u] -= mean;
        if (t + u * THREADS < quads) {
            squares += total(xs[u] * xs[u]);
            products += total(xs[u] * gs[u]);
            cotangents += total(gs[u]);
        }
    }
    for (uint q = t + HELD * THREADS; q < quads; q += THREADS) {
        vec4 d = quad_at(x_row, q, DTYPE_X) - mean, g = weighted_quad(q);
        squares += total(d * d);
        products += total(d * g);
        cotangents += total(g);
    }
    for (uint i = 4u * quads + t; i < cols; i += THREADS) {
        float d = load_float(x_row, i, DTYPE_X) - mean, g = weighted(load_float(c_row, i, DTYPE_C), i);
        squares += d * d;
        products += d * g;
        cotangents += g;
    }
    float s = inversesqrt(workgroup_sum(squares) / float(cols) + pc.p.eps);
    float along = workgroup_sum(products) / float(cols) * s * s; // mean of g n, of a d instead of an n
    float shift = CENTERED != 0u ? workgroup_sum(cotangents) / float(cols) : 0.0;

    [[unroll]] for (uint u = 0; u < HELD; u++) {
        uint q = t + u * THREADS;
        if (q < quads)
            store_quad_bits(out_row + uint64_t(4u * q) * DTYPE_BYTES(DTYPE_X), DTYPE_X,
                            floatBitsToUint(s * (gs[u] - shift - xs[u] * along)));
    }
    for (uint q = t + HELD * THREADS; q < quads; q += THREADS) {
        vec4 d = quad_at(x_row, q, DTYPE_X) - mean;
        store_quad_bits(out_row + uint64_t(4u * q) * DTYPE_BYTES(DTYPE_X), DTYPE_X,
                        floatBitsToUint(s * (weighted_quad(q) - shift - d * along)));
    }
    for (uint i = 4u * quads + t; i < cols; i += THREADS) {
        float d = load_float(x_row, i, DTYPE_X) - mean, g = weighted(load_float(c_row, i, DTYPE_C), i);
        store_float(out_row, i, DTYPE_X, s * (g - shift - d * along));
    }
}
