#version 460
// Statistics of each query row for the gradients of attention: out[row] = (log of the sum of exp(scale * q . k + mask) over the keys, y .
// cotangent), y being the row's result. A row that sees no key has an infinite logarithm, which makes all its probabilities 0.
//
// batch * heads * ceil(q_len / TILE) workgroups. Of a tile of scores THREADS / TILE threads have a row, each with a running maximum and sum.

#define BUFFERS 7
#include "attention_vjp.glsl"

void main() {
    uint tiles = (pc.p.q_len + TILE - 1u) / TILE, group = flat_workgroup(), t = gl_LocalInvocationID.x;
    if (group >= pc.p.batch * pc.p.heads * tiles) return;
    uint first = group % tiles * TILE;
    head = group / tiles % pc.p.heads;
    set_batch(group / tiles / pc.p.heads);
    kv_head = head / (pc.p.heads / pc.p.kv_heads);

    uint row = t % TILE, part = t / TILE, parts = THREADS / TILE;
    float most = LOWEST, sum = 0.0;
    uint end = end_of_keys(first);
    for (uint key = 0; key < end; key += TILE) {
        multiply_rows(queries_at(first), DTYPE_Q, keys_at(key), DTYPE_KV, HEAD_DIM);
        [[unroll]] for (uint m = 0; m < DOWN; m++) {
            [[unroll]] for (uint n = 0; n < ALONG; n++) {
                uint i = line() + LINES * m, j = place() + 16u * n;
                weights[i * PITCH + j] = masked(sums[m * ALONG + n] * pc.p.scale, first + i, key + j);
            }
        }
        barrier();
        float best = most;
        for (uint j = part; j < TILE; j += parts) best = max(best, weights[row * PITCH + j]);
        sum *= exp(most - best);
        for (uint j = part; j < TILE; j += parts) {
            float score = weights[row * PITCH + j];
            if (!(score <= LOWEST)) sum += exp(score - best);
        }
        most = best;
    }

    // Parts of rows, then sixteenths of the dot products.
    barrier();
    weights[part * TILE + row] = most;
    weights[(parts + part) * TILE + row] = sum;
    for (uint i = line(); i < TILE; i += LINES) {
        float product = 0.0;
        if (first + i < pc.p.q_len) {
            uint64_t at = query_line(first + i) * (V_DIM * DTYPE_BYTES(DTYPE_C));
            for (uint d = place(); d < V_DIM; d += 16u) {
                product += load_float(pc.address[5] + at, d, DTYPE_C) * load_float(pc.address[2] + at, d, DTYPE_C);
            }
        }
        left[i * 16u + place()] = product;
    }
    barrier();
    if (t >= TILE || first + t >= pc.p.q_len) return;
    for (uint i = 1; i < parts; i++) {
        float other = weights[i * TILE + t], best = max(most, other);
        sum = sum * exp(most - best) + weights[(parts + i) * TILE + t] * exp(other - best);
        most = best;
    }
    float delta = 0.0;
    for (uint i = 0; i < 16u; i++) delta += left[t * 16u + i];
    uint64_t to = pc.address[6] + query_line(first + t) * 8u;
    F32s(to).v[0] = sum == 0.0 ? INFINITE : most + log(sum);
    F32s(to).v[1] = delta;
}
