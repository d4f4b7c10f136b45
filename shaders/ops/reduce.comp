#version 460
// out[row] = in[row, 0] op in[row, 1] op …; argmin and argmax give the uint32 position, the first one on ties.
//
// One workgroup a row. A thread folds every THREADS-th element into four accumulators, the workgroup folds the threads
// in a tree, so a float sum of n elements is n / (4 * THREADS) additions deep. Rows are found through outer strides,
// elements through inner strides. logsumexp takes the maximum first. An empty row gives the identity.
//
// Four elements an iteration: a row may hold 65,535 * 4 * THREADS elements on drivers that cap loops.

#define BUFFERS 2
#define PUSH ReducePush
#include "include/common.glsl"
#include "include/combine.h"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 3) const uint OP = OP_SUM;

#include "include/vector.glsl"

const bool IS_ARG = OP == OP_ARGMIN || OP == OP_ARGMAX;
const bool IS_LOGICAL = OP == OP_ALL || OP == OP_ANY;

shared uint scratch[1024];
shared uint scratch_index[1024];

// Folds one register (and position) of every thread; the result is everyone's.
uvec2 fold(uint op, uvec2 mine) {
    uint t = gl_LocalInvocationID.x;
    barrier();
    scratch[t] = mine.x;
    if (IS_ARG) scratch_index[t] = mine.y;
    barrier();
    for (uint n = THREADS; n > 1u;) {
        uint keep = (n + 1u) / 2u;
        if (t < n - keep) {
            uint other = scratch[t + keep];
            if (IS_ARG) {
                uint other_index = scratch_index[t + keep];
                if (other > scratch[t] || (other == scratch[t] && other_index < scratch_index[t])) {
                    scratch[t] = other;
                    scratch_index[t] = other_index;
                }
            } else {
                scratch[t] = combine(op, DTYPE_IN, scratch[t], other);
            }
        }
        n = keep;
        barrier();
    }
    return uvec2(scratch[0], IS_ARG ? scratch_index[0] : 0u);
}

uint element(int base, uint i) {
    int at = base;
    if (pc.p.inner_shape[0] == 1u) {
        at += int(i) * pc.p.inner_strides[1];
    } else {
        at += int(i / pc.p.inner_shape[1]) * pc.p.inner_strides[0];
        at += int(i % pc.p.inner_shape[1]) * pc.p.inner_strides[1];
    }
    return load_bits(element_address(pc.address[0], at, DTYPE_BYTES(DTYPE_IN)), 0u, DTYPE_IN);
}

// Four neighbours from i on, a multiple of 4.
uvec4 element4(uint64_t row, uint i) {
    if (DTYPE_BYTES(DTYPE_IN) == 4u) return U32x4s(row).v[i / 4u];
    uvec2 u = U32x2s(row).v[i / 4u];
    return floatBitsToUint(pair_values(u, DTYPE_IN));
}

// argmin and argmax of a row of neighbours in wide loads, all under way before the first is needed: one workgroup has a long row to
// itself. Ties go by position, so the order does not matter.
uvec2 arg_share(uint64_t row) {
    uvec2 best = uvec2(0u, 0xffffffffu);
    for (uint first = 4u * gl_LocalInvocationID.x; first < pc.p.cols; first += 16u * THREADS) {
        uvec4 loaded[4];
        [[unroll]] for (uint u = 0; u < 4u; u++)
            loaded[u] = element4(row, min(first + 4u * u * THREADS, pc.p.cols - 4u));
        [[unroll]] for (uint u = 0; u < 4u; u++) {
            uint i = first + 4u * u * THREADS;
            if (i >= pc.p.cols) continue;
            [[unroll]] for (uint e = 0; e < 4u; e++) {
                uint key = extreme_key(OP, loaded[u][e], DTYPE_IN);
                if (best.y == 0xffffffffu || key > best.x) best = uvec2(key, i + e); // positions only grow
            }
        }
    }
    return best;
}

// What this thread's share of the row folds to. With `shift` (logsumexp) elements count as exp(x - shift).
uvec2 fold_share(uint op, int base, float shift) {
    uint neutral = IS_ARG ? 0u : identity(op, DTYPE_IN);
    uvec2 part[4];
    for (uint u = 0; u < 4u; u++) part[u] = uvec2(neutral, 0xffffffffu);
    for (uint first = gl_LocalInvocationID.x; first < pc.p.cols; first += 4u * THREADS) {
        uint loaded[4]; // all under way before the first is needed
        [[unroll]] for (uint u = 0; u < 4u; u++)
            loaded[u] = element(base, min(first + u * THREADS, pc.p.cols - 1u));
        [[unroll]] for (uint u = 0; u < 4u; u++) {
            uint i = first + u * THREADS, bits = loaded[u];
            if (i >= pc.p.cols) continue;
            if (IS_ARG) {
                uint key = extreme_key(OP, bits, DTYPE_IN);
                if (part[u].y == 0xffffffffu || key > part[u].x) part[u] = uvec2(key, i);
                continue;
            }
            if (IS_LOGICAL) bits = truth(bits, DTYPE_IN);
            if (OP == OP_LOGSUMEXP && op == OP_SUM) bits = floatBitsToUint(exp(uintBitsToFloat(bits) - shift));
            part[u].x = combine(op, DTYPE_IN, part[u].x, bits);
        }
    }
    if (!IS_ARG) {
        uint low = combine(op, DTYPE_IN, part[0].x, part[1].x);
        return uvec2(combine(op, DTYPE_IN, low, combine(op, DTYPE_IN, part[2].x, part[3].x)), 0u);
    }
    for (uint u = 1; u < 4u; u++) {
        if (part[u].x > part[0].x || (part[u].x == part[0].x && part[u].y < part[0].y)) part[0] = part[u];
    }
    return part[0];
}

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    int base = 0;
    uint rest = row;
    [[unroll]] for (int d = 2; d >= 0; d--) {
        base += int(rest % pc.p.outer_shape[d]) * pc.p.outer_strides[d];
        rest /= pc.p.outer_shape[d];
    }

    // logsumexp folds twice, and the second time only if the maximum does not decide alone (-inf everywhere, inf, NaN).
    uint op = OP == OP_LOGSUMEXP ? OP_MAX : OP;
    uint64_t address = element_address(pc.address[0], base, DTYPE_BYTES(DTYPE_IN));
    bool neighbours = pc.p.inner_shape[0] == 1u && pc.p.inner_strides[1] == 1 && pc.p.cols % 4u == 0u && aligned16(address);
    bool wide = IS_ARG && neighbours && (DTYPE_BYTES(DTYPE_IN) == 4u || DTYPE_IN == DTYPE_F16 || DTYPE_IN == DTYPE_BF16);
    uvec2 share;
    if (wide) share = arg_share(address);
    else share = fold_share(op, base, 0.0);
    uvec2 folded = fold(op, share);
    float most = uintBitsToFloat(folded.x);
    if (OP == OP_LOGSUMEXP && is_finite(most)) {
        float total = uintBitsToFloat(fold(OP_SUM, fold_share(OP_SUM, base, most)).x);
        folded.x = floatBitsToUint(most + log(total));
    }
    uint result = IS_ARG ? (pc.p.cols == 0u ? 0u : folded.y) : folded.x;
    if (gl_LocalInvocationID.x == 0u) store_bits(pc.address[1], row, DTYPE_OUT, result);
}
