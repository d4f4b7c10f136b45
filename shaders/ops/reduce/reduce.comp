#version 460
// out[row] = in[row, 0] op in[row, 1] op …; argmin and argmax give the uint32 position, the first one on ties.
//
// One workgroup a row. A thread folds every THREADS-th quad of a contiguous row, or every THREADS-th element of another
// one, into several accumulators. The workgroup folds the threads in a tree. So a float sum of n elements is at most n
// / (4 * THREADS) additions deep. Rows are found through outer strides, elements through inner strides. logsumexp takes
// the maximum first. An empty row gives the identity.
//
// A long argmin or argmax takes two dispatches. With PAIRS_WRITTEN rows are parts of it and give (key, position) pairs.
// With PAIRS_READ the input is pairs of parts of `part` elements, read through strides that count pairs.
//
// Four elements an iteration: a row may hold 65,535 * 4 * THREADS elements on drivers that cap loops.

#define BUFFERS 2
#define PUSH ReducePush
#include "include/common.glsl"
#include "include/combine.h"
#include "include/quad.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 3) const uint OP = OP_SUM;
layout(constant_id = 4) const uint PAIRS = PAIRS_NONE;

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

// The first value of a thread. If no key is larger than 0, no position is found, and the result is the first one.
uint neutral(uint op) { return IS_ARG ? 0u : identity(op, DTYPE_IN); }

uvec2 element(int base, uint i) {
    int at = base;
    if (pc.p.inner_shape[0] == 1u) {
        at += int(i) * pc.p.inner_strides[1];
    } else {
        at += int(i / pc.p.inner_shape[1]) * pc.p.inner_strides[0];
        at += int(i % pc.p.inner_shape[1]) * pc.p.inner_strides[1];
    }
    if (PAIRS == PAIRS_READ) return U32x2s(element_address(pc.address[0], at, 8u)).v[0];
    return uvec2(load_bits(element_address(pc.address[0], at, DTYPE_BYTES(DTYPE_IN)), 0u, DTYPE_IN), 0u);
}

// Takes element i into `part`; positions only grow from call to call. With `shift` (logsumexp) elements count as exp(x - shift).
void fold_one(uint op, float shift, uint bits, uint i, inout uvec2 part) {
    if (IS_ARG) {
        uint key = extreme_key(OP, bits, DTYPE_IN);
        if (key > part.x) part = uvec2(key, i);
        return;
    }
    if (IS_LOGICAL) bits = truth(bits, DTYPE_IN);
    if (OP == OP_LOGSUMEXP && op == OP_SUM) bits = floatBitsToUint(exp(uintBitsToFloat(bits) - shift));
    part.x = combine(op, DTYPE_IN, part.x, bits);
}

uvec2 better(uint op, uvec2 a, uvec2 b) {
    if (!IS_ARG) return uvec2(combine(op, DTYPE_IN, a.x, b.x), 0u);
    return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a;
}

// The share of a row of neighbours: quads, all under way before the first is needed. A position takes more to fold than to compare with
// the one before, so those have one accumulator.
uvec2 wide_share(uint op, uint64_t row, float shift) {
    uint t = gl_LocalInvocationID.x, whole = pc.p.cols & ~3u;
    uvec2 part[4][4];
    [[unroll]] for (uint u = 0; u < 4u; u++) [[unroll]]
        for (uint e = 0; e < 4u; e++) part[u][e] = uvec2(neutral(op), 0xffffffffu);
    for (uint first = 4u * t; first < whole; first += 16u * THREADS) {
        uvec4 loaded[4];
        [[unroll]] for (uint u = 0; u < 4u; u++)
            loaded[u] = load_quad_bits(row + uint64_t(min(first + 4u * u * THREADS, whole - 4u)) * DTYPE_BYTES(DTYPE_IN), DTYPE_IN);
        [[unroll]] for (uint u = 0; u < 4u; u++) {
            uint i = first + 4u * u * THREADS;
            if (i >= whole) continue;
            [[unroll]] for (uint e = 0; e < 4u; e++)
                fold_one(op, shift, loaded[u][e], i + e, part[IS_ARG ? 0u : u][IS_ARG ? 0u : e]);
        }
    }
    if (whole + t < pc.p.cols) fold_one(op, shift, load_bits(row, whole + t, DTYPE_IN), whole + t, part[0][0]);
    [[unroll]] for (uint u = 0; u < 4u; u++)
        part[u][0] = better(op, better(op, part[u][0], part[u][1]), better(op, part[u][2], part[u][3]));
    return better(op, better(op, part[0][0], part[1][0]), better(op, part[2][0], part[3][0]));
}

// The share of any row.
uvec2 fold_share(uint op, int base, float shift) {
    uvec2 part[4];
    for (uint u = 0; u < 4u; u++) part[u] = uvec2(neutral(op), 0xffffffffu);
    for (uint first = gl_LocalInvocationID.x; first < pc.p.cols; first += 4u * THREADS) {
        uvec2 loaded[4]; // all under way before the first is needed
        [[unroll]] for (uint u = 0; u < 4u; u++)
            loaded[u] = element(base, min(first + u * THREADS, pc.p.cols - 1u));
        [[unroll]] for (uint u = 0; u < 4u; u++) {
            uint i = first + u * THREADS;
            if (i >= pc.p.cols) continue;
            if (PAIRS == PAIRS_READ) part[u] = better(op, part[u], uvec2(loaded[u].x, i * pc.p.part + loaded[u].y));
            else fold_one(op, shift, loaded[u].x, i, part[u]);
        }
    }
    return better(op, better(op, part[0], part[1]), better(op, part[2], part[3]));
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
    bool wide = PAIRS != PAIRS_READ && pc.p.inner_shape[0] == 1u && pc.p.inner_strides[1] == 1 && quad_aligned(address, DTYPE_IN);
    uvec2 share;
    if (wide) share = wide_share(op, address, 0.0);
    else share = fold_share(op, base, 0.0);
    uvec2 folded = fold(op, share);
    float most = uintBitsToFloat(folded.x);
    if (OP == OP_LOGSUMEXP && is_finite(most)) {
        if (wide) share = wide_share(OP_SUM, address, most);
        else share = fold_share(OP_SUM, base, most);
        folded.x = floatBitsToUint(most + log(uintBitsToFloat(fold(OP_SUM, share).x)));
    }
    if (gl_LocalInvocationID.x != 0u) return;
    if (IS_ARG && folded.y == 0xffffffffu) folded.y = 0u;
    if (PAIRS == PAIRS_WRITTEN) U32x2s(pc.address[1]).v[row] = folded;
    else store_bits(pc.address[1], row, DTYPE_OUT, IS_ARG ? folded.y : folded.x);
}
