#version 460
// matvec: matmul for few rows of a (m <= 8 or so): streams b, each workgroup making 16 neighbouring columns of every
// row.
//
// b contiguous along k (weights stored (n, k)): a subgroup takes four columns, its lanes stride along k, 16 bytes a
// load where alignment allows. Otherwise threads lie 16 along n and THREADS / 16 along k, and shared memory joins the
// slices of k. Any THREADS that is a multiple of 16 up to 1024. Workgroups: batch * ceil(n / 16), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define PUSH MatmulPush
#include "common.glsl"

layout(constant_id = 1) const uint DTYPE_A = DTYPE_F32;
layout(constant_id = 2) const uint DTYPE_B = DTYPE_F32;
layout(constant_id = 3) const uint DTYPE_OUT = DTYPE_F32;

#include "matmul.glsl"
#include "vector.glsl"

const uint COLUMNS = 16u;
const bool FLOATS = DTYPE_IS_FLOAT(DTYPE_OUT);

shared uint partial[THREADS];

uint multiply_add(uint a, uint b, uint sum) {
    return FLOATS ? floatBitsToUint(fma(uintBitsToFloat(a), uintBitsToFloat(b), uintBitsToFloat(sum))) : a * b + sum;
}

uint add(uint a, uint b) { return FLOATS ? floatBitsToUint(uintBitsToFloat(a) + uintBitsToFloat(b)) : a + b; }

// Four columns of one row, float types, b contiguous along k.
void dot_columns(uint row, uint column) {
    uint64_t a = element_address(operand_a, int(row) * pc.p.a_strides[0], DTYPE_BYTES(DTYPE_A)), b[4];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        b[j] = element_address(operand_b, int(min(column + j, pc.p.n - 1)) * pc.p.b_strides[1], DTYPE_BYTES(DTYPE_B));
    }
    bool wide = pc.p.a_strides[1] == 1 && aligned16(a) && aligned16(b[0] | b[1] | b[2] | b[3]);
    uint whole = wide ? pc.p.k / 8 * 8 : 0;
    vec4 sum = vec4(0);
    for (uint k = gl_SubgroupInvocationID * 8; k < whole; k += gl_SubgroupSize * 8) {
        vec4 a0, a1, b0, b1;
        load8(a, k, DTYPE_A, a0, a1);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            load8(b[j], k, DTYPE_B, b0, b1);
            sum[j] += dot(a0, b0) + dot(a1, b1);
        }
    }
    for (uint k = whole + gl_SubgroupInvocationID; k < pc.p.k; k += gl_SubgroupSize) {
        float x = uintBitsToFloat(a_bits(row, k));
        [[unroll]] for (uint j = 0; j < 4; j++) sum[j] = fma(x, load_float(b[j], k, DTYPE_B), sum[j]);
    }
    sum = subgroupAdd(sum);
    if (subgroupElect()) {
        [[unroll]] for (uint j = 0; j < 4; j++) {
            if (column + j < pc.p.n) store_float(operand_out, row * pc.p.n + column + j, DTYPE_OUT, sum[j]);
        }
    }
}

// Sixteen columns of one row by all threads.
void add_rows(uint row, uint column0) {
    uint column = column0 + gl_LocalInvocationID.x % COLUMNS, slices = THREADS / COLUMNS;
    uint sum = 0;
    if (column < pc.p.n) {
        for (uint k = gl_LocalInvocationID.x / COLUMNS; k < pc.p.k; k += slices) {
            sum = multiply_add(a_bits(row, k), b_bits(k, column), sum);
        }
    }
    barrier(); // the row before has read partial
    partial[gl_LocalInvocationID.x] = sum;
    barrier();
    if (gl_LocalInvocationID.x < COLUMNS && column < pc.p.n) {
        for (uint slice = 1; slice < slices; slice++) sum = add(sum, partial[slice * COLUMNS + gl_LocalInvocationID.x]);
        store_bits(operand_out, row * pc.p.n + column, DTYPE_OUT, sum);
    }
}

void main() {
    uint across = (pc.p.n + COLUMNS - 1) / COLUMNS, group = flat_workgroup();
    if (group >= pc.p.batch * across) return;
    find_operands(group / across);
    uint column0 = group % across * COLUMNS;
    if (FLOATS && pc.p.b_strides[0] == 1) {
        for (uint row = 0; row < pc.p.m; row++) {
            for (uint j = gl_SubgroupID * 4; j < COLUMNS && column0 + j < pc.p.n; j += gl_NumSubgroups * 4) {
                dot_columns(row, column0 + j);
            }
        }
    } else {
        for (uint row = 0; row < pc.p.m; row++) add_rows(row, column0);
    }
}
