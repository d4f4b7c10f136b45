#version 460
// The end of a decoder: logits = W (x / rms(x) * w), and the largest of them per workgroup.
//
// 32 lanes make 4 rows at a time, every so many; a row beyond the vocabulary is not kept. Scales and biases come packed,
// [row / 4][group][row % 4], padded to whole fours. `logits` may be absent. best[workgroup] is (index, float bits that order as
// unsigned integers); of equal logits the lowest index wins.

#define BUFFERS 6
#define SUMS_ANY
#include "decode.glsl"
#include "decode_rows.glsl"

layout(constant_id = 13) const uint DTYPE_OUT = DTYPE_F32;

const uint STATE = 0u, NORM = 1u, HEAD = 2u, AFFINE = 3u, LOGITS = 4u, BEST = 5u;

shared uvec2 warp_best[WARPS];

struct Weights { uvec4 codes[4]; uvec4 affine; };

Weights load_weights(uint row, uint chunk) {
    uint at = min(chunk, CHUNKS - 1u);
    Weights w;
    [[unroll]] for (uint r = 0; r < 4u; r++) w.codes[r] = Weights4(pc.address[HEAD]).v[min(row + r, pc.p.vocabulary - 1u) * CHUNKS + at];
    w.affine = Weights4(pc.address[AFFINE]).v[row / 4u * GROUPS + at * 32u / GROUP];
    return w;
}

bool better(uvec2 a, uvec2 b) { return a.y > b.y || (a.y == b.y && a.x < b.x); }

void main() {
    uint last = (pc.p.vocabulary - 1u) & ~3u, step = gl_NumWorkGroups.x * WARPS * 4u;
    uint row = (gl_WorkGroupID.x * WARPS + warp()) * 4u;
    Weights w = load_weights(min(row, last), lane());
    Rows rows;
    load_norm(pc.address[NORM], rows);
    load_residual(state_before(LAYER), rows);
    norm_to_shared(rows);
    float scale = norm_scale();
    Chunk kept = chunk_get(min(lane(), CHUNKS - 1u));
    uvec2 best = uvec2(0xffffffffu, 0u);
    // As many rounds for every warp: lanes meet in barriers where there are no shuffles.
    for (uint base = gl_WorkGroupID.x * WARPS * 4u; base < pc.p.vocabulary; base += step) {
        Weights ahead = load_weights(min(row + step, last), lane());
        vec4 sums = vec4(0);
        [[unroll]] for (uint round = 0; round < CHUNK_ROUNDS; round++) {
            uint chunk = lane() + 32u * round;
            if (round > 0u) w = load_weights(min(row, last), chunk);
            if (chunk < CHUNKS) {
                Chunk c = kept;
                if (round > 0u) c = chunk_get(chunk);
                [[unroll]] for (uint i = 0; i < 4u; i++) sums[i] += chunk_dot(w.codes[i], w.affine[i], c);
            }
        }
        float x = lane_sum4(sums.x, sums.y, sums.z, sums.w) * scale;
        uint mine = row + (lane() >> 3);
        if (mine < pc.p.vocabulary) {
            if (pc.address[LOGITS] != 0ul && (lane() & 7u) == 0u) store_float(pc.address[LOGITS], mine, DTYPE_OUT, x);
            uint bits = floatBitsToUint(x);
            uvec2 key = uvec2(mine, (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u);
            if (better(key, best)) best = key;
        }
        w = ahead;
        row += step;
    }
    [[unroll]] for (uint m = 8u; m < 32u; m <<= 1) {
        uvec2 other = uvec2(lane_xor(best.x, m), lane_xor(best.y, m));
        if (better(other, best)) best = other;
    }
    if (lane() == 0u) warp_best[warp()] = best;
    barrier();
    if (thread() == 0u) {
        [[unroll]] for (uint i = 1; i < WARPS; i++) if (better(warp_best[i], best)) best = warp_best[i];
        U32x2s(pc.address[BEST]).v[gl_WorkGroupID.x] = best;
    }
}
