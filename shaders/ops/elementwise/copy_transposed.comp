#version 460
// copy_transposed: does what copy does if neighbours along one dimension of the input are neighbours along another one
// of the output. The fourth dimension has the input's neighbours, the fifth the output's.
//
// A workgroup moves TILE x TILE elements of ELEMENT_BYTES, 1, 2, 4 or 8, through shared memory. It reads runs along the
// fourth dimension and writes runs along the fifth. Workgroups: tiles along the fifth dimension, then along the fourth,
// then shape[0..2], folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH CopyPush
#include "include/common.glsl"

layout(constant_id = 1) const uint ELEMENT_BYTES = 4;
layout(constant_id = 2) const uint TILE = 32;

const uint WORDS = ELEMENT_BYTES == 8 ? 2u : 1u;
const uint LOADS = (TILE * TILE + THREADS - 1u) / THREADS;

shared uint tile[WORDS * TILE * (TILE + 1u)]; // one more from run to run, so that columns lie in different banks

uvec2 load_element(uint64_t address) {
    if (ELEMENT_BYTES == 8) return U32x2s(address).v[0];
    if (ELEMENT_BYTES == 4) return uvec2(U32s(address).v[0], 0);
    if (ELEMENT_BYTES == 2) return uvec2(U16s(address).v[0], 0);
    return uvec2(U8s(address).v[0], 0);
}

void store_element(uint64_t address, uvec2 x) {
    if (ELEMENT_BYTES == 8) U32x2s(address).v[0] = x;
    else if (ELEMENT_BYTES == 4) U32s(address).v[0] = x.x;
    else if (ELEMENT_BYTES == 2) U16s(address).v[0] = uint16_t(x.x);
    else U8s(address).v[0] = uint8_t(x.x);
}

void main() {
    uint across = (pc.p.shape[4] + TILE - 1u) / TILE, down = (pc.p.shape[3] + TILE - 1u) / TILE;
    uint rest = flat_workgroup();
    uint column0 = rest % across * TILE, row0 = rest / across % down * TILE;
    rest /= across * down;
    if (rest >= pc.p.shape[0] * pc.p.shape[1] * pc.p.shape[2]) return;
    int from = int(row0) * pc.p.in_strides[3] + int(column0) * pc.p.in_strides[4];
    int to = int(row0) * pc.p.out_strides[3] + int(column0) * pc.p.out_strides[4];
    for (int d = 2; d >= 0; d--) {
        int at = int(rest % pc.p.shape[d]);
        rest /= pc.p.shape[d];
        from += at * pc.p.in_strides[d];
        to += at * pc.p.out_strides[d];
    }
    uint rows = min(TILE, pc.p.shape[3] - row0), columns = min(TILE, pc.p.shape[4] - column0);

    uvec2 held[LOADS]; // all loads are under way before the first is waited for
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint f = gl_LocalInvocationID.x + i * THREADS, row = f % TILE, column = f / TILE;
        int at = from + int(row) * pc.p.in_strides[3] + int(column) * pc.p.in_strides[4];
        if (row < rows && column < columns) held[i] = load_element(element_address(pc.address[0], at, ELEMENT_BYTES));
    }
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint f = gl_LocalInvocationID.x + i * THREADS, row = f % TILE, column = f / TILE;
        if (row >= rows || column >= columns) continue;
        [[unroll]] for (uint word = 0; word < WORDS; word++)
            tile[(word * TILE + column) * (TILE + 1u) + row] = held[i][word];
    }
    barrier();
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        uint f = gl_LocalInvocationID.x + i * THREADS, row = f / TILE, column = f % TILE;
        if (row >= rows || column >= columns) continue;
        uvec2 x = uvec2(tile[column * (TILE + 1u) + row], 0);
        if (WORDS == 2) x.y = tile[(TILE + column) * (TILE + 1u) + row];
        int at = to + int(row) * pc.p.out_strides[3] + int(column) * pc.p.out_strides[4];
        store_element(element_address(pc.address[2], at, ELEMENT_BYTES), x);
    }
}
