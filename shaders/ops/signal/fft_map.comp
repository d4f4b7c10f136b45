#version 460
// The steps before and after the passes of a transform of n elements, by MODE of fft.h; a thread makes one element.

#define BUFFERS 4
#define PUSH FftMapPush
#include "include/common.glsl"
#include "fft_roots.glsl"

layout(constant_id = 1) const uint MODE = 0;
layout(constant_id = 2) const uint INVERSE = 0;

vec2 conjugate(vec2 x) { return vec2(x.x, -x.y); }
vec2 turned(vec2 x) { return INVERSE != 0u ? x.yx : x; }

void main() {
    uint at = flat_thread();
    if (at >= pc.p.rows * pc.p.out_cols) return;
    uint k = at % pc.p.out_cols, base = at / pc.p.out_cols * pc.p.in_cols, n = pc.p.n;
    F32x2s in_ = F32x2s(pc.address[0]);
    F32x2s table = F32x2s(pc.address[1]);
    vec2 y = vec2(0.0);
    if (MODE == FFT_WIDEN) y = vec2(F32s(pc.address[0]).v[base + k], 0.0);
    if (MODE == FFT_HEAD || MODE == FFT_REAL_PART) y = in_.v[base + k];
    if (MODE == FFT_HERMITIAN) {
        y = 2u * k <= n ? in_.v[base + k] : conjugate(in_.v[base + n - k]);
        if (k == 0u) y.y = 0.0;
    }
    if (MODE == FFT_SPLIT) {
        uint h = n / 2u;
        vec2 a = in_.v[base + (k == h ? 0u : k)], b = conjugate(in_.v[base + (k == 0u ? 0u : h - k)]);
        vec2 odd = complex_product(a - b, root(table, k));
        y = 0.5 * (a + b + vec2(odd.y, -odd.x));
    }
    if (MODE == FFT_MERGE) {
        vec2 a = in_.v[base + k], b = conjugate(in_.v[base + n / 2u - k]);
        if (k == 0u) a.y = b.y = 0.0;
        vec2 odd = complex_product(a - b, conjugate(root(table, k)));
        y = a + b + vec2(-odd.y, odd.x);
    }
    if (MODE == FFT_CHIRP_IN && k < n) y = complex_product(turned(in_.v[base + k]), root(table, fft_chirp(k, n)));
    if (MODE == FFT_FILTER) {
        uint i = min(k, pc.p.out_cols - k);
        if (i < n) y = conjugate(root(table, fft_chirp(i, n)));
    }
    if (MODE == FFT_PRODUCT) y = complex_product(in_.v[base + k], F32x2s(pc.address[2]).v[k]);
    if (MODE == FFT_CHIRP_OUT) y = turned(complex_product(in_.v[base + k], root(table, fft_chirp(k, n))));
    y *= pc.p.scale;
    if (MODE == FFT_REAL_PART) F32s(pc.address[3]).v[at] = y.x;
    else F32x2s(pc.address[3]).v[at] = y;
}
