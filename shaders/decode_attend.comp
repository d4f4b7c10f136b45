#version 460
// The second phase of a layer: softmax of the scores, times the slice of the values, times the slice's columns of the output
// projection, added to the residual with the residual before. Also brings the normalised new key to the cache.
//
// Workgroup (key/value head, slice); a thread handles positions, two heads at a time, then 4 rows of the projection at a time.
// Codes of the projection come transposed, [feature / 8][row], their scales and biases packed, [group][row].

#define BUFFERS 5
#include "decode.glsl"

const uint STATE = 0u, O = 1u, AFFINE = 2u, KEYS = 3u, VALUES = 4u;

shared float parts[16u * WARPS];   // 2 heads of 8 features, per 32 lanes
shared float part_sum[2u * WARPS];
shared float part_most[2u * WARPS];

uint kv_head() { return gl_WorkGroupID.x / SLICES; }
uint slice() { return gl_WorkGroupID.x % SLICES; }

struct Values { vec4 a[UNROLL], b[UNROLL]; uvec2 scores[UNROLL]; };

// (Arrays sized by constants cannot be assigned whole.)
void load_values(uint pair, uint round, inout Values v) {
    uint64_t values = pc.address[VALUES] + uint64_t((kv_head() * SLICES + slice()) * pc.p.capacity) * (DTYPE_KV == DTYPE_F32 ? 32ul : 16ul);
    [[unroll]] for (uint u = 0; u < UNROLL; u++) {
        uint p = thread() + THREADS * (round * UNROLL + u);
        p = min(p, pc.p.capacity - 1u); // what lies behind the token's position is 0, or not looked at
        v.scores[u] = U32x2s(scores_of(kv_head(), pair)).v[p];
        if (DTYPE_KV == DTYPE_F32) {
            v.a[u] = F32x4s(values).v[2u * p];
            v.b[u] = F32x4s(values).v[2u * p + 1u];
        } else {
            uvec4 w = Weights4(values).v[p];
            v.a[u] = vec4(pair_value(w.x, DTYPE_KV), pair_value(w.y, DTYPE_KV));
            v.b[u] = vec4(pair_value(w.z, DTYPE_KV), pair_value(w.w, DTYPE_KV));
        }
    }
}

float inverse_rms(uint i) { return inversesqrt(sum_value(sum_load(state_squares(), kv_head() * (HEADS + 1u) + i)) + pc.p.head_eps); }

// Softmax and values of two heads: lane l gets feature l & 7 of head (l >> 3) & 1.
float attend(uint pair, uint now, float key_scale) {
    Values v;
    load_values(pair, 0u, v);
    vec2 scale = vec2(inverse_rms(2u * pair), inverse_rms(min(2u * pair + 1u, HEADS - 1u))) * (pc.p.score_scale * 1.4426950408889634);
    vec2 most = vec2(-1e9), total = vec2(0);
    float o[16];
    [[unroll]] for (uint i = 0; i < 16u; i++) o[i] = 0.0;
    for (uint round = 0; round < ROUNDS && round * UNROLL * THREADS <= now; round++) {
        Values next;
        bool more = round + 1u < ROUNDS && (round + 1u) * UNROLL * THREADS <= now;
        if (more) load_values(pair, round + 1u, next);
        vec2 s[UNROLL];
        // The largest score only shifts the exponents, so sixteenths do, and integers are reduced fastest.
        ivec2 top = ivec2(-(1 << 28));
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint p = thread() + THREADS * (round * UNROLL + u);
            s[u] = score_value(v.scores[u]) * scale * (p == now ? 8.0 * key_scale : 1.0);
            if (p <= now) top = max(top, ivec2(clamp(s[u], -1e7, 1e7) * 16.0));
        }
        vec2 peak = max(most, vec2(lane_max(top.x), lane_max(top.y)) * 0.0625);
        if (ROUNDS > 1u) {
            vec2 shrink = exp2(most - peak);
            total *= shrink;
            [[unroll]] for (uint i = 0; i < 8u; i++) {
                o[i] *= shrink.x;
                o[8u + i] *= shrink.y;
            }
        }
        most = peak;
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint p = thread() + THREADS * (round * UNROLL + u);
            if (p > now) break;
            vec2 e = exp2(s[u] - most);
            total += e;
            [[unroll]] for (uint i = 0; i < 4u; i++) {
                o[i] += e.x * v.a[u][i];
                o[4u + i] += e.x * v.b[u][i];
                o[8u + i] += e.y * v.a[u][i];
                o[12u + i] += e.y * v.b[u][i];
            }
        }
        if (more) [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            v.a[u] = next.a[u];
            v.b[u] = next.b[u];
            v.scores[u] = next.scores[u];
        }
    }
    // Sums over 32 lanes: lane l keeps value l / 2.
    bool up = (lane() & 16u) != 0u;
    [[unroll]] for (uint i = 0; i < 8u; i++) o[i] = (up ? o[8u + i] : o[i]) + lane_xor(up ? o[i] : o[8u + i], 16u);
    float mass = (up ? total.y : total.x) + lane_xor(up ? total.x : total.y, 16u);
    up = (lane() & 8u) != 0u;
    [[unroll]] for (uint i = 0; i < 4u; i++) o[i] = (up ? o[4u + i] : o[i]) + lane_xor(up ? o[i] : o[4u + i], 8u);
    up = (lane() & 4u) != 0u;
    [[unroll]] for (uint i = 0; i < 2u; i++) o[i] = (up ? o[2u + i] : o[i]) + lane_xor(up ? o[i] : o[2u + i], 4u);
    up = (lane() & 2u) != 0u;
    o[0] = (up ? o[1] : o[0]) + lane_xor(up ? o[0] : o[1], 2u);
    o[0] += lane_xor(o[0], 1u);
    [[unroll]] for (uint m = 1u; m < 16u; m <<= 1) mass += lane_xor(mass, m);
    if (pair > 0u) barrier(); // the parts of the pair before were read
    if ((lane() & 1u) == 0u) parts[(lane() >> 1) * WARPS + warp()] = o[0];
    if ((lane() & 15u) == 0u) {
        part_sum[(lane() >> 4) * WARPS + warp()] = mass;
        part_most[(lane() >> 4) * WARPS + warp()] = lane() == 0u ? most.x : most.y;
    }
    barrier();
    uint value = lane() & 15u, head = value >> 3;
    float peak = -1e9, sum = 0.0, x = 0.0;
    [[unroll]] for (uint i = 0; i < WARPS; i++) peak = max(peak, part_most[head * WARPS + i]);
    [[unroll]] for (uint i = 0; i < WARPS; i++) {
        float f = exp2(part_most[head * WARPS + i] - peak);
        sum += f * part_sum[head * WARPS + i];
        x += f * parts[value * WARPS + i];
    }
    return x / sum;
}

void main() {
    uint now = position();
    Carry carry;
    load_carry(state_before(pc.p.layer), carry);
    float key_scale = inverse_rms(HEADS);
    vec4 rows[QUAD_ROUNDS];
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) rows[n] = vec4(0);
    for (uint pair = 0; pair < PAIRS; pair++) {
        // The weights of the first rows are asked for before the scores are.
        uvec4 codes[2], affine[2];
        [[unroll]] for (uint i = 0; i < 2u; i++) {
            uint word = (kv_head() * HEADS + min(2u * pair + i, HEADS - 1u)) * SLICES + slice();
            uint quad = min(thread(), QUADS - 1u);
            codes[i] = Weights4(pc.address[O]).v[word * QUADS + quad];
            affine[i] = Weights4(pc.address[AFFINE]).v[word * 8u / GROUP * QUADS + quad];
        }
        Blocks q = blocks_make(attend(pair, now, key_scale));
        Block block[2];
        block[0] = block_get(q, 0u);
        block[1] = block_get(q, 1u);
        [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
            uint quad = thread() + n * THREADS;
            if (quad >= QUADS) break;
            [[unroll]] for (uint i = 0; i < 2u; i++) {
                if (2u * pair + i >= HEADS) break;
                if (n > 0u) {
                    uint word = (kv_head() * HEADS + 2u * pair + i) * SLICES + slice();
                    codes[i] = Weights4(pc.address[O]).v[word * QUADS + quad];
                    affine[i] = Weights4(pc.address[AFFINE]).v[word * 8u / GROUP * QUADS + quad];
                }
                rows[n] += block_dot4(codes[i], affine[i], block[i]);
            }
        }
    }
    residual_add(state_after(), rows, carry);
    if (thread() < 8u) {
        uint part = thread() >> 2, i = thread() & 3u;
        uint block = part * (HEAD_DIM / 8u) + slice();
        float key = F32s(state_key()).v[kv_head() * HEAD_DIM + block * 4u + i] * key_scale;
        store_float(pc.address[KEYS], ((kv_head() * (HEAD_DIM / 4u) + block) * pc.p.capacity + now) * 4u + i, DTYPE_KV, key);
    }
}
