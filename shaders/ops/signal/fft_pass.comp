#version 460
// One pass of a Stockham transform. R = FACTOR and m = size / done / R. A row's element q + done * (p + m * j) is input
// j of column (p, q). Output k goes to q + done * (R * p + k), times the root p * k of size / done.
//
// A workgroup transforms COLUMNS columns in shared memory, in the radices FACTORS (four bits each, radix - 1, the first
// lowest). The first stage reads the buffer and the last one writes it. ORDER says which index of a stage runs fastest
// over threads, so that memory is read and written in runs. It is columns; columns, but elements when writing (done =
// 1); or elements (whole rows).

#define BUFFERS 3
#define PUSH FftPassPush
#include "include/common.glsl"
#include "fft_roots.glsl"

layout(constant_id = 1) const uint FACTORS = 1;
layout(constant_id = 2) const uint FACTOR = 2;
layout(constant_id = 3) const uint COLUMNS = 1;
layout(constant_id = 4) const uint ORDER = 0;
layout(constant_id = 5) const uint INVERSE = 0;

const uint STAGES = FACTORS >> 4 == 0u ? 1u : FACTORS >> 8 == 0u ? 2u : 3u; // 3 for more, too
const uint TILE = FACTOR * COLUMNS;

shared vec2 tile[STAGES == 1u ? 1u : TILE * (STAGES - 1u)];

uint tile_at(uint element, uint column) { return ORDER == 2u ? column * FACTOR + element : element * COLUMNS + column; }

vec2 turned(vec2 x) { return INVERSE != 0u ? x.yx : x; }

// Stage number `index`, whose columns were transformed by the factor `stride` already. All constants once the pipeline is made.
void stage(uint index, uint stride, uint column0, uint columns) {
    const uint radix = (FACTORS >> (4u * index) & 15u) + 1u;
    const uint count = FACTOR / radix;
    const bool first = index == 0u, last = stride * radix == FACTOR;
    const bool elements = ORDER == 2u || (ORDER == 1u && last);
    const uint from = (index & 1u) == 1u ? 0u : TILE, to = (index & 1u) == 0u ? 0u : TILE;
    F32x2s table = F32x2s(pc.address[1]);
    uint per_row = pc.p.size / FACTOR;
    for (uint b = gl_LocalInvocationID.x; b < COLUMNS * count; b += THREADS) {
        uint local = elements ? b / count : b % COLUMNS;
        uint t = elements ? b % count : b / COLUMNS;
        uint column = column0 + local;
        if (column >= columns) continue;
        uint row = column / per_row, i = column % per_row;
        float re[FFT_MAX], im[FFT_MAX];
        [[unroll]] for (uint j = 0; j < radix; j++) {
            uint element = t + count * j;
            vec2 x =
                first ? turned(F32x2s(pc.address[0]).v[row * pc.p.size + i + per_row * element]) : tile[from + tile_at(element, local)];
            re[j] = x.x;
            im[j] = x.y;
        }
        fft_butterfly(radix, re, im);
        uint q = t % stride, p = t / stride;
        uint outer_p = i / pc.p.done, outer_q = i % pc.p.done;
        uint step = pc.p.order / FACTOR * stride * p;
        uint outer_step = pc.p.order / pc.p.size * pc.p.done * outer_p;
        [[unroll]] for (uint k = 0; k < radix; k++) {
            vec2 x = vec2(re[k], im[k]);
            uint element = q + stride * (radix * p + k);
            if (!last) {
                if (k > 0u && p > 0u) x = complex_product(x, root(table, step * k));
                tile[to + tile_at(element, local)] = x;
            } else {
                if (outer_p > 0u && element > 0u) x = complex_product(x, root(table, outer_step * element));
                uint at = row * pc.p.size + outer_q + pc.p.done * (FACTOR * outer_p + element);
                F32x2s(pc.address[2]).v[at] = turned(x) * pc.p.scale;
            }
        }
    }
}

#define RADIX(i) ((FACTORS >> (4 * (i)) & 15u) + 1u)

void main() {
    uint columns = pc.p.rows * (pc.p.size / FACTOR);
    uint column0 = flat_workgroup() * COLUMNS;
    if (column0 >= columns) return;
    stage(0u, 1u, column0, columns);
    const uint s1 = RADIX(0), s2 = s1 * RADIX(1), s3 = s2 * RADIX(2), s4 = s3 * RADIX(3), s5 = s4 * RADIX(4), s6 = s5 * RADIX(5);
    if (s1 < FACTOR) {
        barrier();
        stage(1u, s1, column0, columns);
    }
    if (s2 < FACTOR) {
        barrier();
        stage(2u, s2, column0, columns);
    }
    if (s3 < FACTOR) {
        barrier();
        stage(3u, s3, column0, columns);
    }
    if (s4 < FACTOR) {
        barrier();
        stage(4u, s4, column0, columns);
    }
    if (s5 < FACTOR) {
        barrier();
        stage(5u, s5, column0, columns);
    }
    if (s6 < FACTOR) {
        barrier();
        stage(6u, s6, column0, columns);
    }
}
