#version 460
// add_norm: what a layer has between two products. total = x + scale * (parts[0] + parts[1] + … + bias).
// out = total / sqrt(mean over the row of total^2 + eps) * weight, within float16's range if that is its dtype.
//
// parts (splits, rows, COLS), as a product with a split depth leaves them; none if splits is 0. Where CHOSEN is 1 they are what the chosen
// experts of each row gave, (rows, splits, COLS). Each counts by its weight in choice (rows, 2 * splits). A bias (COLS,) is added to them
// if it is bound. Parts of another product, beside (pc.p.beside, rows, COLS) in float16, are added times pc.p.beside_scale, and times the
// sigmoid of score (rows,) if that is bound. Each of total and out is written if it is bound; total may be x. One workgroup a row: every
// thread keeps its quads in registers. COLS a multiple of 4, rows aligned to 16 bytes. Workgroups: rows, folded over (x, y).

#define BUFFERS 9
#define PUSH AddNormPush
#include "include/common.glsl"
#include "include/vec4.glsl"
#include "include/math/math.h"

layout(constant_id = 1) const uint COLS = 1024;
layout(constant_id = 2) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_PARTS = DTYPE_F16;
layout(constant_id = 4) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_TOTAL = DTYPE_F32;
layout(constant_id = 6) const uint DTYPE_OUT = DTYPE_F16;
layout(constant_id = 7) const uint CHOSEN = 0;
layout(constant_id = 8) const uint DTYPE_SCORE = DTYPE_F32;
layout(constant_id = 9) const uint DTYPE_BIAS = DTYPE_F32;

const uint QUADS = COLS / 4;
const uint EACH = (QUADS + THREADS - 1) / THREADS;
const uint X = 0, PARTS = 1, WEIGHT = 2, TOTAL = 3, OUT = 4, CHOICE = 5, BESIDE = 6, SCORE = 7, BIAS = 8;

const bool EARLY = EACH <= 4; // the weights of the norm come with the row: more would take registers
vec4 quads[EACH], weights[EACH];

// Quad i of a part of a row.
vec4 part_of(uint row, uint split, uint i) {
    if (CHOSEN == 0u) return load_quad(pc.address[PARTS], (split * pc.p.rows + row) * QUADS + i, DTYPE_PARTS);
    uint place = row * pc.p.splits + split;
    float weight = load_float(pc.address[CHOICE], place + (row + 1u) * pc.p.splits, DTYPE_F32);
    return weight * load_quad(pc.address[PARTS], place * QUADS + i, DTYPE_PARTS);
}

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    uint first = row * QUADS;
    float squares = 0.0, share = pc.p.beside_scale;
    if (pc.address[SCORE] != 0ul) share *= m_sigmoid(load_float(pc.address[SCORE], row, DTYPE_SCORE));
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        uint i = gl_LocalInvocationID.x + e * THREADS;
        if (i >= QUADS) break;
        vec4 x = load_quad(pc.address[X], first + i, DTYPE_X), sum = vec4(0.0);
        if (EARLY && pc.address[OUT] != 0ul) weights[e] = load_quad(pc.address[WEIGHT], i, DTYPE_WEIGHT);
        for (uint split = 0; split < pc.p.splits; split += 8) {
            [[unroll]] for (uint s = split; s < split + 8; s++) { // loads of eight are on their way at once
                if (s < pc.p.splits) sum += part_of(row, s, i);
            }
        }
        if (pc.address[BIAS] != 0ul) sum += load_quad(pc.address[BIAS], i, DTYPE_BIAS);
        if (pc.p.splits > 0) x += pc.p.scale * sum;
        if (pc.p.beside > 0) {
            vec4 other = vec4(0.0);
            for (uint split = 0; split < pc.p.beside; split++)
                other += load_quad(pc.address[BESIDE], (split * pc.p.rows + row) * QUADS + i, DTYPE_F16);
            x += share * other;
        }
        if (pc.address[TOTAL] != 0ul) store_quad(pc.address[TOTAL], first + i, DTYPE_TOTAL, x);
        squares += dot(x, x);
        quads[e] = x;
    }
    if (pc.address[OUT] == 0ul) return;
    float factor = inversesqrt(workgroup_sum(squares) / float(COLS) + pc.p.eps);
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        uint i = gl_LocalInvocationID.x + e * THREADS;
        if (i >= QUADS) break;
        vec4 y = quads[e] * factor * (EARLY ? weights[e] : load_quad(pc.address[WEIGHT], i, DTYPE_WEIGHT));
        if (DTYPE_OUT == DTYPE_F16) y = within_half(y);
        store_quad(pc.address[OUT], first + i, DTYPE_OUT, y);
    }
}
