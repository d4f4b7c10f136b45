// q, k and v of eight sequences: y = x / rms(x) * w, products with a slice of a head, q and k turned by their position, all left
// in the state: q and k scaled by their own norm weights but not by 1 / rms, and parts of their squares.
//
// Workgroup (key/value head, slice). Tasks, rows and layouts are those of decode_qkv.glsl.

const uint TYPES = HEADS + 2u, TASKS = 2u * TYPES;
const uint ALL_BLOCKS = (TASKS + 3u) / 4u;
uint feature_of(uint half_, uint r) { return (HEAD_DIM / 2u) * (r & 1u) + 4u * slice() + 2u * half_ + (r >> 1); }

Weights load_qkv(uint block) {
    Weights w;
    block = min(block, ALL_BLOCKS - 1u);
    uint task = min(task_of(block), TASKS - 1u);
#ifdef MATRICES
    load_fragments(ADDRESS(QKV_CODES) + uint64_t(gl_WorkGroupID.x * ALL_BLOCKS + block) * 8192ul, w);
#else
    uint type = task >> 1, half_ = task & 1u, head = type < HEADS ? kv_head() * HEADS + type : kv_head();
    [[unroll]] for (uint r = 0; r < 4u; r++) {
        uint feature = type <= HEADS ? feature_of(half_, r) : 8u * slice() + 4u * half_ + r;
        load_row(ADDRESS((type < HEADS ? Q : type == HEADS ? K : V)) + uint64_t((head * HEAD_DIM + feature) * CHUNKS) * 16ul, r, w);
    }
#endif
    [[unroll]] for (uint j = 0; j < SLOTS; j++)
        w.affine[j] = Weights4(ADDRESS(QKV_AFFINE)).v[(gl_WorkGroupID.x * TASKS + task) * GROUPS + group_of(j)];
    return w;
}

// What a task's rows are turned by and scaled with, asked for before their sums are there.
struct Turns { vec2 turn[4]; float weight[4]; };

Turns load_turns(uint task) {
    uint type = task >> 1;
    Turns t;
    [[unroll]] for (uint r = 0; r < 4u; r++) {
        uint feature = feature_of(task & 1u, r);
        t.turn[r] = F32x2s(in_state(AT_TURNS)).v[feature % (HEAD_DIM / 2u)];
        t.weight[r] = load_float(type < HEADS ? q_norm() : k_norm(), feature, DTYPE_W);
    }
    return t;
}

void finish_qkv(uint task, vec4 sums, float scale, Turns t) {
    vec4 x = sums * scale;
    uint type = task >> 1, half_ = task & 1u;
    if (type > HEADS) {
        [[unroll]] for (uint r = 0; r < 4u; r++) x[r] = rounded_as(x[r], DTYPE_KV);
        Shared4(in_state(AT_VALUES)).v[gl_WorkGroupID.x * 2u + half_] = floatBitsToUint(x);
        return;
    }
    // Nothing may be joined here that is not where one sequence is served.
    precise float a = x.y * x.y, b = x.w * x.w, square = fma(x.x, x.x, a) + fma(x.z, x.z, b);
    uint head = kv_head() * (HEADS + 1u) + type;
    Shared2(in_state(AT_SQUARES)).v[head * 2u * SLICES + 2u * slice() + half_] = sum_of(square * (SQUARE_STEPS / float(HEAD_DIM)));
    [[unroll]] for (uint r = 0; r < 4u; r++) {
        float y = x[r] * t.weight[r], partner = x[r ^ 1u] * t.weight[r ^ 1u];
        y = fma(y, t.turn[r].x, partner * ((r & 1u) != 0u ? t.turn[r].y : -t.turn[r].y));
        Shared1(in_state(AT_HEADS)).v[head * HEAD_DIM + feature_of(half_, r)] = floatBitsToUint(y);
    }
}

// Of groups of eight sequences.
void qkv(uint first_group, uint end_group) {
    [[dont_unroll]] for (uint first = 0; first < ALL_BLOCKS; first += QKV_BLOCKS) {
        Weights w0 = load_qkv(first), w1 = load_qkv(first + 1u);
        NormWeights n = load_norm(ADDRESS(NORM));
        uint task = task_of(first + warp());
        POLLED(if (first == 0u) wait_behind(DOWN_PHASE));
        [[dont_unroll]] for (uint group = first_group; group < end_group; group++) {
            take_group(group);
            Turns turns;
            if (warp() < QKV_BLOCKS) turns = load_turns(task);
            barrier(); // the parts before were read
            normalise(n);
            keep_part(0u, warp_sums(w0));
            keep_part(1u, warp_sums(w1));
            barrier();
            if (warp() < QKV_BLOCKS) {
                vec4 sums = sum_of_warps(warp());
                if (task < TASKS && sequence_of_lane() < SEQUENCES) finish_qkv(task, sums, norm_scale(), turns);
            }
        }
    }
}
