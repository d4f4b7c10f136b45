// What the kernels that open a token know of ropes beyond their frequencies. OPEN_ID is the first of the ids of these constants.

layout(constant_id = OPEN_ID) const uint ROPE_DIMS = 0u;         // features of a head that are rotated; 0 for all
layout(constant_id = OPEN_ID + 1) const uint ROPE_FACTOR_0 = 0u; // float bits of a factor; 0 where both are 1
layout(constant_id = OPEN_ID + 2) const uint ROPE_FACTOR_1 = 0u; // of the second rope

// Pairs of features of a head; those that are rotated come first.
const uint ROPE_PAIRS = HEAD_DIM / 2u, ROTATED_PAIRS = ROPE_DIMS == 0u ? ROPE_PAIRS : ROPE_DIMS / 2u;

// Cosine and sine of a pair, times the factor of its rope if it is rotated.
vec2 rope_angle_of(uint rope, uint pair, uint turn) {
    vec2 angle = vec2(turn_cos(turn), turn_sin(turn));
    if (ROPE_FACTOR_0 != 0u && pair < ROTATED_PAIRS) angle *= uintBitsToFloat(rope == 0u ? ROPE_FACTOR_0 : ROPE_FACTOR_1);
    return angle;
}
