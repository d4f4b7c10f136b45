#version 460
// quantized_matvec: out[batch][m][n] = sum over k of x[batch][m][k] * w[n][k] for few rows m; w (n, k) packed along k.
//
// A subgroup makes four outputs: its lanes stride along k in chunks of 32 codes (16 bytes at 4 bits), which lie in one
// group, so a lane needs one scale and one bias per chunk and row of w; the bias is folded into bias * sum(x). ROWS
// rows of x share each unpacking. A workgroup makes THREADS / 8 outputs, four for each 32 threads. Any THREADS that is
// a multiple of 32. Workgroups: batch * ceil(n / (THREADS / 8)), folded over (x, y).

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 5
#define PUSH QuantizedMatmulPush
#include "common.glsl"

layout(constant_id = 1) const uint BITS = 4;
layout(constant_id = 2) const uint GROUP = 64;
layout(constant_id = 3) const uint DTYPE_X = DTYPE_F32;
layout(constant_id = 4) const uint DTYPE_SCALES = DTYPE_F32;
layout(constant_id = 5) const uint DTYPE_OUT = DTYPE_F32;
layout(constant_id = 6) const uint ROWS = 1;

#include "quantized.glsl"
#include "vector.glsl"

const uint OUTPUTS = THREADS / 8u;

// x[row][k..k+7]; rows beyond m repeat the last one.
void load_x(uint64_t x, uint row, uint k, bool wide, out vec4 first, out vec4 second) {
    uint i = min(row, pc.p.m - 1) * pc.p.k + k;
    if (wide) {
        load8(x, i, DTYPE_X, first, second);
    } else {
        [[unroll]] for (uint j = 0; j < 4; j++) {
            first[j] = load_float(x, i + j, DTYPE_X);
            second[j] = load_float(x, i + 4 + j, DTYPE_X);
        }
    }
}

// Outputs n..n+3 of rows row..row+ROWS-1.
void make_outputs(uint64_t x, uint64_t w, uint64_t scales, uint64_t biases, uint64_t result, uint row, uint n) {
    uint chunks = pc.p.k / 32, groups = pc.p.k / GROUP;
    bool wide = aligned16(x);
    vec4 sums[ROWS];
    [[unroll]] for (uint m = 0; m < ROWS; m++) sums[m] = vec4(0);
    for (uint chunk = gl_SubgroupInvocationID; chunk < chunks; chunk += gl_SubgroupSize) {
        uvec4 low[4], high[4];
        uint64_t words[4];
        vec4 scale, bias;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            uint at = min(n + j, pc.p.n - 1);
            uint group = at * groups + chunk * 32 / GROUP;
            words[j] = w + (uint64_t(at) * chunks + chunk) * (4 * BITS);
            if (BITS == 4 || BITS == 8) low[j] = U32x4s(words[j]).v[0];
            if (BITS == 8) high[j] = U32x4s(words[j]).v[1];
            float s = load_float(scales, group, DTYPE_SCALES);
            scale[j] = code_scale(s);
            bias[j] = code_bias(s, load_float(biases, group, DTYPE_SCALES));
        }
        vec4 part[ROWS];
        float total[ROWS];
        [[unroll]] for (uint m = 0; m < ROWS; m++) {
            part[m] = vec4(0);
            total[m] = 0.0;
        }
        for (uint eight = 0; eight < 4; eight++) {
            vec4 first[4], second[4];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                uvec2 codes;
                if (BITS == 4) { // take the first word, the others move up
                    codes = uvec2(low[j].x, 0);
                    low[j] = low[j].yzwx;
                } else if (BITS == 8) {
                    codes = low[j].xy;
                    low[j] = uvec4(low[j].zw, high[j].xy);
                    high[j] = high[j].zwxy;
                } else {
                    codes = codes8(words[j], eight);
                }
                [[unroll]] for (uint i = 0; i < 4; i++) {
                    first[j][i] = code_value(code_at(codes, i));
                    second[j][i] = code_value(code_at(codes, i + 4));
                }
            }
            [[unroll]] for (uint m = 0; m < ROWS; m++) {
                vec4 a, b;
                load_x(x, row + m, chunk * 32 + eight * 8, wide, a, b);
                total[m] += dot(a + b, vec4(1));
                [[unroll]] for (uint j = 0; j < 4; j++) part[m][j] += dot(first[j], a) + dot(second[j], b);
            }
        }
        [[unroll]] for (uint m = 0; m < ROWS; m++) sums[m] += scale * part[m] + bias * total[m];
    }
    [[unroll]] for (uint m = 0; m < ROWS; m++) {
        vec4 sum = subgroupAdd(sums[m]);
        if (subgroupElect() && row + m < pc.p.m) {
            [[unroll]] for (uint j = 0; j < 4; j++) {
                if (n + j < pc.p.n) store_float(result, (row + m) * pc.p.n + n + j, DTYPE_OUT, sum[j]);
            }
        }
    }
}

void main() {
    uint across = (pc.p.n + OUTPUTS - 1) / OUTPUTS, group = flat_workgroup();
    if (group >= pc.p.batch * across) return;
    uint batch = group / across, first = group % across * OUTPUTS;
    uint64_t index = uint64_t(pc.p.w_batch == 1 ? 0 : batch), elements = index * (pc.p.n * (pc.p.k / 32));
    uint64_t x = pc.address[0] + uint64_t(batch) * (pc.p.m * pc.p.k * DTYPE_BYTES(DTYPE_X));
    uint64_t w = pc.address[1] + elements * (4 * BITS), scales = elements * (32 * DTYPE_BYTES(DTYPE_SCALES)) / GROUP;
    uint64_t result = pc.address[4] + uint64_t(batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
    for (uint row = 0; row < pc.p.m; row += ROWS) {
        for (uint j = gl_SubgroupID * 4; j < OUTPUTS && first + j < pc.p.n; j += gl_NumSubgroups * 4) {
            make_outputs(x, w, pc.address[2] + scales, pc.address[3] + scales, result, row, first + j);
        }
    }
}
