#version 460
// Roots of unity for fft_pass and fft_map: a thread makes one entry of the coarse table or of the fine one after it.

#define BUFFERS 1
#define PUSH FftTablePush
#include "include/common.glsl"
#include "include/math/fft.h"

void main() {
    uint i = flat_thread();
    uint coarse = ((pc.p.order - 1u) >> pc.p.shift) + 1u;
    if (i >= coarse + (1u << pc.p.shift)) return;
    uint e = i < coarse ? i << pc.p.shift : i - coarse;
    F32s out_ = F32s(pc.address[0]);
    out_.v[2u * i] = fft_cos(e, pc.p.order);
    out_.v[2u * i + 1u] = -fft_sin(e, pc.p.order);
}
