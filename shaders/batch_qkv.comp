#version 460
// q, k and v of eight sequences: y = x / rms(x) * w, products with a slice of a head, q and k turned by their position. v goes
// to the cache; q and k, scaled by their own norm weights but not by 1 / rms, and parts of their squares to the state.
//
// Workgroup (key/value head, slice) and (eight sequences). Tasks, rows and layouts are those of decode_qkv.glsl.

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#endif
#define BUFFERS 9
#include "batch.glsl"

const uint STATE = 0u, NORM = 1u, Q = 2u, K = 3u, V = 4u, QKV_AFFINE = 5u, Q_NORM = 6u, K_NORM = 7u, VALUES = 8u;
const uint TYPES = HEADS + 2u, TASKS = 2u * TYPES;
const uint ALL_BLOCKS = (TASKS + 3u) / 4u;
#define BLOCKS 2u

uint feature_of(uint half_, uint r) { return (HEAD_DIM / 2u) * (r & 1u) + 4u * slice() + 2u * half_ + (r >> 1); }

uint64_t weight_row(uint task, uint r) {
    uint type = min(task >> 1, TYPES - 1u), half_ = task & 1u;
    uint feature = type <= HEADS ? feature_of(half_, r) : 8u * slice() + 4u * half_ + r;
    uint head = type < HEADS ? kv_head() * HEADS + type : kv_head();
    return pc.address[type < HEADS ? Q : type == HEADS ? K : V] + uint64_t((head * HEAD_DIM + feature) * CHUNKS) * 16ul;
}

uvec4 affine_of(uint task, uint chunk) {
    return Weights4(pc.address[QKV_AFFINE]).v[(gl_WorkGroupID.x * TASKS + min(task, TASKS - 1u)) * GROUPS + chunk * 32u / GROUP];
}

#include "batch_norm.glsl"

void finish(uint task, vec4 sums, float scale, uint now) {
    vec4 x = sums * scale;
    uint type = task >> 1, half_ = task & 1u;
    if (type > HEADS) {
        [[unroll]] for (uint r = 0; r < 4u; r++)
            store_float(CACHE(VALUES), (gl_WorkGroupID.x * pc.p.capacity + now) * 8u + 4u * half_ + r, DTYPE_KV, x[r]);
        return;
    }
    precise float a = x.y * x.y, b = x.w * x.w, square = fma(x.x, x.x, a) + fma(x.z, x.z, b);
    uint head = kv_head() * (HEADS + 1u) + type;
    Shared2(place(AT_SQUARES)).v[head * 2u * SLICES + 2u * slice() + half_] = sum_of(square * (SQUARE_STEPS / float(HEAD_DIM)));
    [[unroll]] for (uint r = 0; r < 4u; r++) {
        uint feature = feature_of(half_, r);
        vec2 turn = F32x2s(place(AT_TURNS)).v[feature % (HEAD_DIM / 2u)];
        uint64_t weights = pc.address[type < HEADS ? Q_NORM : K_NORM];
        float y = x[r] * load_float(weights, feature, DTYPE_W);
        float partner = x[r ^ 1u] * load_float(weights, feature_of(half_, r ^ 1u), DTYPE_W);
        F32s(place(AT_HEADS)).v[head * HEAD_DIM + feature] = fma(y, turn.x, partner * ((r & 1u) != 0u ? turn.y : -turn.y));
    }
}

void main() {
    take_sequence();
    [[dont_unroll]] for (uint first = 0; first < ALL_BLOCKS; first += BLOCKS) {
        if (first > 0u) barrier(); // the parts before were read
        Weights w0 = load_weights(first), w1 = load_weights(first + 1u);
        uint now = now_of_sequence();
        if (first == 0u) normalise(pc.address[NORM]);
        partial[warp() * 32u + lane()] = warp_sums(w0);
        partial[(NORM_WARPS + warp()) * 32u + lane()] = warp_sums(w1);
        barrier();
        if (warp() < BLOCKS) {
            uint task = 4u * (first + warp()) + (lane() & 3u);
            vec4 sums = sum_of_warps(warp() * NORM_WARPS * 32u + lane());
            if (task < TASKS && sequence_of_lane() < SEQUENCES) finish(task, sums, norm_scale(), now);
        }
    }
}
