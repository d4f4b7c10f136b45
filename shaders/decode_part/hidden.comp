#version 460
// The end of a decoder whose next layers are on another device: the residual after the last layer, rounded to DTYPE_OUT. It is
// NaN if a number was lost on the way.
//
// Any grid along x, a sequence each along y; thread t handles every so many quads of features. With POST_NORM each workgroup
// normalises what the last layer adds, and keeps its share of the sum.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 3
#define ANY_ACCUMULATORS
#define NORMS_ID 15
#include "decode/decode.glsl"
#include "decode/row_products.glsl"

layout(constant_id = 14) const uint DTYPE_OUT = DTYPE_F32;

const uint STATE = 0u, NORM = 1u, OUT = 2u; // NORM has that of what the last layer adds first

void store_hidden(uint quad, vec4 x, bool lost) {
    if (lost) x = vec4(uintBitsToFloat(0x7fc00000u));
    uint at = SEQUENCE * QUADS + quad;
    if (DTYPE_OUT == DTYPE_F32) {
        Shared4(pc.address[OUT]).v[at] = floatBitsToUint(x);
        return;
    }
    uvec4 bits;
    [[unroll]] for (uint i = 0; i < 4u; i++)
        bits[i] = DTYPE_OUT == DTYPE_F16 ? f16_bits(x[i]) : bf16_bits(x[i]);
    Shared2(pc.address[OUT]).v[at] = uvec2(bits.x | bits.y << 16, bits.z | bits.w << 16);
}

void main() {
    bool lost = U32s(state_lost()).v[0] != 0u;
#if ACCUMULATORS != 3
    if (POST_NORM != 0u) {
        Rows rows;
        load_residual(state_before(LAYER), rows);
        PartNorm part_norm;
        load_part_norm(pc.address[NORM], part_norm);
        load_carried(1u);
        add_part(part_norm, rows);
        [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
            uint quad = thread() + n * THREADS;
            if (quad < QUADS && quad % gl_NumWorkGroups.x == gl_WorkGroupID.x) store_hidden(quad, rows.x[n], lost);
        }
        return;
    }
#endif
    uint step = gl_NumWorkGroups.x * THREADS;
    for (uint quad = gl_WorkGroupID.x * THREADS + thread(); quad < QUADS; quad += step)
        store_hidden(quad, residual_quad(state_before(LAYER), quad), lost);
}
