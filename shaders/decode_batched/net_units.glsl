// Sizes of the units of recurrent layers in net.glsl, which the room in shared memory follows from too.

const uint SHARING = VALUE_HEADS / KEY_HEADS;      // heads of values of a head of keys
const uint OWN_HEADS = KEEPS != 0u ? 1u : SHARING; // of values of a unit
const uint UNITS_OF_SEQUENCE = VALUE_HEADS / OWN_HEADS, UPDATE_UNITS = SEQUENCES / TOKENS * UNITS_OF_SEQUENCE;
const uint UNIT_VALUES = OWN_HEADS * VALUE_DIM, UNIT_FEATURES = 2u * KEY_DIM + UNIT_VALUES; // q, k and v
// Pairs of features of all tokens of a unit.
#define NET_ROOM (TOKENS * UNIT_FEATURES / 2u)
