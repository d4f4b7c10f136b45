#version 460
// scatter_keys: keys[k] = the place along the axis that indices[k] means, from 0 to axis - 1. One thread an index.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 2
#define PUSH GatherPush
#include "include/common.glsl"
#include "include/indices.glsl"

layout(constant_id = 1) const uint DTYPE_INDEX = DTYPE_U32;
layout(constant_id = 2) const uint DTYPE_KEY = DTYPE_U32;

void main() {
    uint k = flat_thread();
    if (k < pc.p.n) store_bits(pc.address[1], k, DTYPE_KEY, axis_index(pc.address[0], k, DTYPE_INDEX, pc.p.axis));
}
