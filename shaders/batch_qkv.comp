#version 460
// q, k and v of eight sequences: y = x / rms(x) * w, products with a slice of a head, q and k turned by their position. v goes
// to the cache; q and k, scaled by their own norm weights but not by 1 / rms, and parts of their squares to the state.
//
// Workgroup (key/value head, slice) and (eight sequences). Tasks, rows and layouts are those of decode_qkv.glsl.

#extension GL_GOOGLE_include_directive : require
#ifdef MATRICES
#include "coopmat.glsl"
#endif
#ifdef MATRICES
#define BUFFERS 7
#else
#define BUFFERS 9
#endif
#include "batch.glsl"

#ifdef MATRICES
const uint STATE = 0u, NORM = 1u, QKV_AFFINE = 2u, Q_NORM = 3u, K_NORM = 4u, VALUES = 5u, CODES = 6u;
#else
const uint STATE = 0u, NORM = 1u, QKV_AFFINE = 2u, Q_NORM = 3u, K_NORM = 4u, VALUES = 5u, Q = 6u, K = 7u, V = 8u;
#endif
const uint TYPES = HEADS + 2u, TASKS = 2u * TYPES;
const uint ALL_BLOCKS = (TASKS + 3u) / 4u;
#define BLOCKS 2u

uint feature_of(uint half_, uint r) { return (HEAD_DIM / 2u) * (r & 1u) + 4u * slice() + 2u * half_ + (r >> 1); }

#ifdef MATRICES
uint64_t fragments_of(uint block) { return pc.address[CODES] + uint64_t(gl_WorkGroupID.x * ALL_BLOCKS + min(block, ALL_BLOCKS - 1u)) * 8192ul; }
#else
uint64_t weight_row(uint task, uint r) {
    uint type = min(task >> 1, TYPES - 1u), half_ = task & 1u;
    uint feature = type <= HEADS ? feature_of(half_, r) : 8u * slice() + 4u * half_ + r;
    uint head = type < HEADS ? kv_head() * HEADS + type : kv_head();
    return pc.address[type < HEADS ? Q : type == HEADS ? K : V] + uint64_t((head * HEAD_DIM + feature) * CHUNKS) * 16ul;
}

#endif
uvec4 affine_of(uint task, uint chunk) {
    return Weights4(pc.address[QKV_AFFINE]).v[(gl_WorkGroupID.x * TASKS + min(task, TASKS - 1u)) * GROUPS + chunk * 32u / GROUP];
}

#include "batch_norm.glsl"

// What a task's rows are turned by and scaled with, asked for before their sums are there.
struct Turns { vec2 turn[4]; float weight[4]; };

Turns load_turns(uint task) {
    uint type = task >> 1;
    Turns t;
    [[unroll]] for (uint r = 0; r < 4u; r++) {
        uint feature = feature_of(task & 1u, r);
        t.turn[r] = F32x2s(in_state(AT_TURNS)).v[feature % (HEAD_DIM / 2u)];
        t.weight[r] = load_float(pc.address[type < HEADS ? Q_NORM : K_NORM], feature, DTYPE_W);
    }
    return t;
}

void finish(uint task, vec4 sums, float scale, uint now, Turns t) {
    vec4 x = sums * scale;
    uint type = task >> 1, half_ = task & 1u;
    if (type > HEADS) {
        [[unroll]] for (uint r = 0; r < 4u; r++)
            store_float(CACHE(VALUES), (gl_WorkGroupID.x * pc.p.capacity + now) * 8u + 4u * half_ + r, DTYPE_KV, x[r]);
        return;
    }
    // Nothing may be joined here that is not where one sequence is served.
    precise float a = x.y * x.y, b = x.w * x.w, square = fma(x.x, x.x, a) + fma(x.z, x.z, b);
    uint head = kv_head() * (HEADS + 1u) + type;
    Shared2(in_state(AT_SQUARES)).v[head * 2u * SLICES + 2u * slice() + half_] = sum_of(square * (SQUARE_STEPS / float(HEAD_DIM)));
    [[unroll]] for (uint r = 0; r < 4u; r++) {
        float y = x[r] * t.weight[r], partner = x[r ^ 1u] * t.weight[r ^ 1u];
        F32s(in_state(AT_HEADS)).v[head * HEAD_DIM + feature_of(half_, r)] = fma(y, t.turn[r].x, partner * ((r & 1u) != 0u ? t.turn[r].y : -t.turn[r].y));
    }
}

void main() {
    take_sequence();
    [[dont_unroll]] for (uint first = 0; first < ALL_BLOCKS; first += BLOCKS) {
        if (first > 0u) barrier(); // the parts before were read
        Weights w0 = load_weights(first), w1 = load_weights(first + 1u);
        uint now = now_of_sequence(), task = 4u * (first + warp()) + (lane() & 3u);
        Turns turns;
        if (warp() < BLOCKS) turns = load_turns(task);
        if (first == 0u) normalise(pc.address[NORM]);
        partial[warp() * 32u + lane()] = warp_sums(w0);
        partial[(NORM_WARPS + warp()) * 32u + lane()] = warp_sums(w1);
        barrier();
        if (warp() < BLOCKS) {
            vec4 sums = sum_of_warps(warp() * NORM_WARPS * 32u + lane());
            if (task < TASKS && sequence_of_lane() < SEQUENCES) finish(task, sums, norm_scale(), now, turns);
        }
    }
}
