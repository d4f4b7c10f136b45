#version 460
// arange: out[i] = start + i * step, in the domain of the output's dtype; a step of 0 fills. One thread an element.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 1
#define PUSH ArangePush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_OUT = DTYPE_F32;

void main() {
    uint i = flat_thread();
    if (i >= pc.p.count) return;
    if (DTYPE_IS_WIDE(DTYPE_OUT)) { // of complex64 only fills, of float64 nothing
        uint64_t wide = packUint2x32(uvec2(pc.p.start, pc.p.start_high));
        wide += uint64_t(i) * packUint2x32(uvec2(pc.p.step, pc.p.step_high));
        U32x2s(pc.address[0]).v[i] = unpackUint2x32(wide);
        return;
    }
    uint bits = pc.p.start + i * pc.p.step; // int and uint agree in their bits
    if (DTYPE_IS_FLOAT(DTYPE_OUT)) {
        precise float offset = float(i) * uintBitsToFloat(pc.p.step);
        precise float x = uintBitsToFloat(pc.p.start) + offset;
        bits = floatBitsToUint(pc.p.step == 0u ? uintBitsToFloat(pc.p.start) : x);
    }
    if (DTYPE_OUT == DTYPE_BOOL) bits = uint(bits != 0u);
    store_bits(pc.address[0], i, DTYPE_OUT, bits);
}
