// Complex numbers in buffers and the roots of unity of fft_table; for shaders whose push block has `order` and `shift`.

#include "include/math/fft.h"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2s { vec2 v[]; };

vec2 complex_product(vec2 a, vec2 b) { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

vec2 root(F32x2s table, uint e) {
    vec2 coarse = table.v[e >> pc.p.shift];
    if (pc.p.shift == 0u) return coarse;
    uint fine = ((pc.p.order - 1u) >> pc.p.shift) + 1u;
    return complex_product(coarse, table.v[fine + (e & ((1u << pc.p.shift) - 1u))]);
}
