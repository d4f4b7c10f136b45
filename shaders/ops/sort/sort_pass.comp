#version 460
// Compare-exchange passes of a bitonic sort of (key, index) pairs; push.h says which passes a dispatch does.
//
// A workgroup owns 2 * THREADS pairs, a thread one comparison of each pass: rows * padded / span workgroups. A pass
// that reaches past the span works in memory; the passes within it run in shared memory, one after the other.

#define BUFFERS 2
#define PUSH SortPush
#include "include/common.glsl"

shared uint span_keys[2048];
shared uint span_indices[2048];

// First element of comparison `c` at distance `j`.
uint left_of(uint c, uint j) { return ((c & ~(j - 1u)) << 1) | (c & (j - 1u)); }

bool out_of_order(uint key_a, uint index_a, uint key_b, uint index_b) { return key_a > key_b || (key_a == key_b && index_a > index_b); }

void exchange_in_memory(U32s keys, U32s indices, uint comparison) {
    uint half_padded = pc.p.padded / 2u;
    uint i = left_of(comparison % half_padded, pc.p.pass_j);
    uint a = comparison / half_padded * pc.p.padded + i;
    uint b = a + pc.p.pass_j;
    bool ascending = (i & pc.p.pass_k) == 0u;
    uvec2 left = uvec2(keys.v[a], indices.v[a]);
    uvec2 right = uvec2(keys.v[b], indices.v[b]);
    if (out_of_order(left.x, left.y, right.x, right.y) != ascending) return;
    keys.v[a] = right.x;
    indices.v[a] = right.y;
    keys.v[b] = left.x;
    indices.v[b] = left.y;
}

void main() {
    U32s keys = U32s(pc.address[0]);
    U32s indices = U32s(pc.address[1]);
    uint t = gl_LocalInvocationID.x;
    uint span = min(2u * THREADS, pc.p.padded);
    uint base = flat_workgroup() * span;
    if (base / pc.p.padded >= pc.p.rows) return;
    if (pc.p.pass_j >= span) {
        exchange_in_memory(keys, indices, flat_thread());
        return;
    }

    for (uint i = t; i < span; i += THREADS) {
        span_keys[i] = keys.v[base + i];
        span_indices[i] = indices.v[base + i];
    }
    barrier();
    for (uint k = pc.p.pass_k == span ? 2u : pc.p.pass_k; k <= pc.p.pass_k; k *= 2u) {
        for (uint j = min(k / 2u, span / 2u); j > 0u; j /= 2u) {
            if (t < span / 2u) {
                uint a = left_of(t, j);
                uint b = a + j;
                bool ascending = ((base % pc.p.padded + a) & k) == 0u;
                uvec2 left = uvec2(span_keys[a], span_indices[a]);
                uvec2 right = uvec2(span_keys[b], span_indices[b]);
                if (out_of_order(left.x, left.y, right.x, right.y) == ascending) {
                    span_keys[a] = right.x;
                    span_indices[a] = right.y;
                    span_keys[b] = left.x;
                    span_indices[b] = left.y;
                }
            }
            barrier();
        }
    }
    for (uint i = t; i < span; i += THREADS) {
        keys.v[base + i] = span_keys[i];
        indices.v[base + i] = span_indices[i];
    }
}
