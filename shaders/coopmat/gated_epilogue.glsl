// The epilogue of coopmat_gated on its sums: scale * activation(x . gate) * (x . up). In a subgroup blocks of gate and up alternate.

layout(constant_id = 6) const uint ACTIVATION = 0; // a code of activation.glsl
#include "include/activation.glsl"

float gated(float x, float y) { return pc.p.scale * (activation(x, ACTIVATION) * y); }
vec4 gated(vec4 x, vec4 y) { return vec4(gated(x.x, y.x), gated(x.y, y.y), gated(x.z, y.z), gated(x.w, y.w)); }

// The sums of gate become those results.
void gate() {
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; i += 2) {
        [[unroll]] for (uint e = 0; e < sums[0].length(); e++)
            sums[i][e] = gated(sums[i][e], sums[i + 1][e]);
    }
}
