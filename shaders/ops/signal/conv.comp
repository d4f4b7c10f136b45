#version 460
// conv: convolution of groups of channels as a product of patches (images * positions, taps * channels) and weights (filters, taps *
// channels). Patches exist in shared memory only: a tile of them is gathered from the input, channels last, as it is needed.
//
// A workgroup makes one tile (tile.glsl). Workgroups: groups * ceil(images * positions / TILE_ROWS) * ceil(filters / TILE_COLUMNS),
// folded over (x, y). Sums are float32; SPLITS is 1.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH ConvPush
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_WEIGHT = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 4) const uint SIDE = 8;
layout(constant_id = 5) const uint ROW_QUADS = 1;
layout(constant_id = 6) const uint COLUMN_QUADS = 1;
layout(constant_id = 7) const uint DEPTH = 16;
layout(constant_id = 8) const uint UNROLL = 4;
layout(constant_id = 9) const uint SPLITS = 1;
layout(constant_id = 10) const uint FLIP = 0;

#define TILE_FLOAT true
#include "ops/matmul/tile.glsl"
#include "conv.glsl"

uint rows, taps, depths;
Tile tile;
Operand weights;
Place places[A_VEC8S];
Vec8 a_vec8s[A_VEC8S], b_vec8s[B_VEC8S];

// Elements of eight patches' values beside each other: at `depth` of an output, channels of a tap and then those of the next.
Vec8 fetch_patch(Place place, uint row, uint depth) {
    Vec8 e = Vec8(uvec4(0), uvec4(0));
    if (row >= rows || depth >= depths) return e;
    uint tap = depth / pc.p.channels, channel = depth % pc.p.channels, pixel = pc.p.groups * pc.p.channels;
    uint first = tile.batch * pc.p.channels;
    int position = tap_position(place, tap);
    if (pc.p.channels % 8u == 0u && aligned16(pc.address[0])) {
        if (position < 0) return e;
        uint64_t address = element_address(pc.address[0], int(uint(position) * pixel + first + channel), DTYPE_BYTES(DTYPE_IN));
        return Vec8(U32x4s(address).v[0], in_pairs(DTYPE_IN) ? uvec4(0) : U32x4s(address).v[1]);
    }
    for (uint i = 0; i < 8u && depth + i < depths; i++) {
        if (position >= 0) {
            uint64_t address = element_address(pc.address[0], int(uint(position) * pixel + first + channel), DTYPE_BYTES(DTYPE_IN));
            if (in_pairs(DTYPE_IN)) e.first[i / 2u] |= uint(U16s(address).v[0]) << 16u * (i % 2u);
            else if (i < 4u) e.first[i] = U32s(address).v[0];
            else e.second[i - 4u] = U32s(address).v[0];
        }
        if (++channel == pc.p.channels) {
            channel = 0;
            position = tap_position(place, ++tap);
        }
    }
    return e;
}

// Weights of a filter beside each other, in the order of the taps that meet them.
Vec8 fetch_weights(uint filter_, uint depth) {
    if (FLIP == 0) return fetch_vec8(weights, DTYPE_WEIGHT, filter_, depth);
    Vec8 e = Vec8(uvec4(0), uvec4(0));
    if (filter_ >= pc.p.filters) return e;
    for (uint i = 0; i < 8u && depth + i < depths; i++) {
        uint tap = (depth + i) / pc.p.channels, channel = (depth + i) % pc.p.channels;
        int at = int(filter_ * depths + (taps - 1u - tap) * pc.p.channels + channel);
        uint64_t address = element_address(weights.address, at, DTYPE_BYTES(DTYPE_WEIGHT));
        if (in_pairs(DTYPE_WEIGHT)) e.first[i / 2u] |= uint(U16s(address).v[0]) << 16u * (i % 2u);
        else if (i < 4u) e.first[i] = U32s(address).v[0];
        else e.second[i - 4u] = U32s(address).v[0];
    }
    return e;
}

void tile_fetch(uint depth0) {
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true);
        a_vec8s[i] = fetch_patch(places[i], tile.row0 + place.x, depth0 + place.y);
    }
    [[unroll]] for (uint i = 0; i < B_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, true);
        b_vec8s[i] = fetch_weights(tile.column0 + place.x, depth0 + place.y);
    }
}

void tile_fill() {
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true);
        put_vec8(0, TILE_ROWS, place, true, unpacked(a_vec8s[i], DTYPE_IN));
    }
    [[unroll]] for (uint i = 0; i < B_VEC8S; i++) {
        uvec2 place = eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_COLUMNS, true);
        put_vec8(SLICE_B, TILE_COLUMNS, place, true, unpacked(b_vec8s[i], DTYPE_WEIGHT));
    }
}

void main() {
    uint group = flat_workgroup();
    rows = pc.p.images * pc.p.out_shape[0] * pc.p.out_shape[1] * pc.p.out_shape[2];
    taps = pc.p.kernel[0] * pc.p.kernel[1] * pc.p.kernel[2];
    depths = taps * pc.p.channels;
    if (group >= tile_count(pc.p.groups, rows, pc.p.filters)) return;
    tile = tile_of(group, pc.p.groups, rows, pc.p.filters);
    [[unroll]] for (uint i = 0; i < A_VEC8S; i++) {
        places[i] = place_of(tile.row0 + eight_place(gl_LocalInvocationID.x + i * THREADS, TILE_ROWS, true).x);
    }
    uint64_t first = element_address(pc.address[1], int(tile.batch * pc.p.filters * depths), DTYPE_BYTES(DTYPE_WEIGHT));
    weights = operand_of(first, DTYPE_WEIGHT, int(depths), 1, pc.p.filters, depths, true);
    tile_product(tile.split, depths);
    uint64_t out_ = element_address(pc.address[2], int(tile.batch * pc.p.filters), DTYPE_BYTES(DTYPE_OUT));
    tile_store(out_, DTYPE_OUT, tile, rows, pc.p.filters, pc.p.groups * pc.p.filters);
}
