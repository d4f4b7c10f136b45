#version 460
// conv_direct: convolution where groups have few channels and filters, such as a depthwise one: a thread an output, neighbours along the
// filters. images * positions * groups * filters threads. Sums are float32.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH ConvPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint FLIP = 0;

#include "conv.glsl"

void main() {
    uint i = flat_thread(), all = pc.p.groups * pc.p.filters;
    if (i >= pc.p.images * pc.p.out_shape[0] * pc.p.out_shape[1] * pc.p.out_shape[2] * all) return;
    uint index = i % all, taps = pc.p.kernel[0] * pc.p.kernel[1] * pc.p.kernel[2];
    Place place = place_of(i / all);
    float sum = 0.0;
    for (uint tap = 0; tap < taps; tap++) {
        int position = tap_position(place, tap);
        if (position < 0) continue;
        uint from = (uint(position) * pc.p.groups + index / pc.p.filters) * pc.p.channels;
        uint weight = (index * taps + (FLIP != 0 ? taps - 1u - tap : tap)) * pc.p.channels;
        for (uint c = 0; c < pc.p.channels; c++) {
            sum = fma(load_float(pc.address[0], from + c, DTYPE_IN), load_float(pc.address[1], weight + c, DTYPE_WEIGHT), sum);
        }
    }
    store_float(pc.address[2], i, DTYPE_OUT, sum);
}
