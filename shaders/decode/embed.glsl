// The embedding of a token as the residual before the first layer of a decoder.

#include "include/math/small_float.h"

layout(constant_id = EMBED_ID) const uint EMBED_SCALE = 0u; // float bits: the factor of embeddings; 0 where there is none

float rounded_x(float x) { return rounded_as(x, DTYPE_X); }
vec4 rounded_x(vec4 x) { return vec4(rounded_x(x.x), rounded_x(x.y), rounded_x(x.z), rounded_x(x.w)); }

// x times the factor, each rounded.
vec4 scaled_x(vec4 x) {
    vec4 row = rounded_x(x);
    return EMBED_SCALE == 0u ? row : rounded_x(row * rounded_x(uintBitsToFloat(EMBED_SCALE)));
}

// Small floats: four codes times the scale of their group, exact in 16 bits. Scales are bytes.
vec4 small_floats(uint codes, uint group) {
    uint byte = U32s(pc.address[SCALES]).v[group / 4u] >> 8u * (group % 4u) & 255u;
    vec4 x;
    [[unroll]] for (uint i = 0; i < 4u; i++)
        x[i] = e2m1_value(codes >> 4u * i & 15u);
    if (SCALE_BYTES(TABLE_FORMAT) == 2u) return x * e4m3_value(byte);
    float power = e8m0_value(byte);
    return vec4(scaled_by_power(x.x, power), scaled_by_power(x.y, power), scaled_by_power(x.z, power), scaled_by_power(x.w, power));
}

// Features 4 * quad to 4 * quad + 3 of a token's row in the table.
vec4 embedding(uint token, uint quad) {
    uint row = min(token, pc.p.vocabulary - 1u);
    const uint bits = CODE_BITS(TABLE_FORMAT), small_group = GROUP_SIZE(TABLE_FORMAT) / SCALE_BYTES(TABLE_FORMAT);
    const uint group_size = IS_E2M1(TABLE_FORMAT) ? small_group : SYMMETRIC(TABLE_FORMAT) != 0u ? 16u : GROUP_SIZE(TABLE_FORMAT);
    if (bits == 16u) {
        vec4 x = load_quad(pc.address[CODES], row * QUADS + quad, DTYPE_W);
        return scaled_x(x);
    }
    uint bit = quad * (4u * bits), codes = U32s(pc.address[CODES]).v[row * (HIDDEN * bits / 32u) + bit / 32u] >> bit % 32u;
    uint group = row * (HIDDEN / group_size) + quad * 4u / group_size;
    if (IS_E2M1(TABLE_FORMAT)) return scaled_x(small_floats(codes, group));
    vec4 c = vec4(uvec4(codes, codes >> bits, codes >> 2u * bits, codes >> 3u * bits) & ((1u << bits) - 1u)), x;
    float scale = load_float(pc.address[SCALES], group, DTYPE_W);
    if (SYMMETRIC(TABLE_FORMAT) != 0u) x = scale * (c - float(1u << bits - 1u)); // rounded once
    else x = rounded_x(scale) * c + rounded_x(load_float(pc.address[BIASES], group, DTYPE_W));
    return scaled_x(x);
}

#if ACCUMULATORS != 3
// The residual before the first layer: x, and nothing in the other copies.
void open_residual(uint quad, vec4 x) {
    [[unroll]] for (uint i = 0; i < 4u; i++)
        accumulator_store(state_before(0u), place(4u * quad + i), accumulator_whole(x[i]));
    [[unroll]] for (uint c = 1; c < COPIES; c++) [[unroll]]
        for (uint i = 0; i < 4u; i++) accumulator_store(state_before(0u), place(c * HIDDEN + 4u * quad + i), ZERO_ACCUMULATOR);
}
#endif
