#version 460
// unpack_codes: codes of BITS bits, as MLX packs them along rows of whole runs of 32. They come out with WIDE bits each, 4
// or 8: the same numbers plus SHIFT, for kernels that know those widths.
//
// Eight codes a thread: count threads.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 2
#define PUSH WidenCodesPush
#include "include/common.glsl"

layout(constant_id = 1) const uint BITS = 3;
layout(constant_id = 2) const uint WIDE = 4;
layout(constant_id = 3) const uint SHIFT = 0;

#include "quantized.glsl"

void main() {
    uint i = flat_workgroup() * THREADS + gl_LocalInvocationID.x;
    if (i >= pc.p.count) return;
    uvec2 codes = codes8(pc.address[0] + uint64_t(i / 4u) * (4u * BITS), i % 4u), wide = uvec2(0);
    [[unroll]] for (uint c = 0; c < 8u; c++)
        wide[c * WIDE / 32u] |= (code_at(codes, c) + SHIFT) << (c * WIDE % 32u);
    if (WIDE == 4u) U32s(pc.address[1]).v[i] = wide.x;
    else U32x2s(pc.address[1]).v[i] = wide;
}
