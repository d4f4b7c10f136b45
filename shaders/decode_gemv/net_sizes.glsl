// Sizes of recurrent layers, which have a gated delta net in the place of attention, and where its phases leave what they exchange. NET_ID is
// the first of the ids of these constants, and IS_NET says whether the layer at hand is one of them.

layout(constant_id = NET_ID) const uint VALUE_HEADS = 32u;
layout(constant_id = NET_ID + 1) const uint KEY_HEADS = 16u; // a divisor of them
layout(constant_id = NET_ID + 2) const uint KEY_DIM = 128u;
layout(constant_id = NET_ID + 3) const uint VALUE_DIM = 128u;
layout(constant_id = NET_ID + 4) const uint WINDOW = 4u; // of the convolution
layout(constant_id = NET_ID + 5) const uint RATES_FORMAT = 0x19u;
layout(constant_id = NET_ID + 6) const uint DTYPE_X = 0u;     // of the convolution's inputs
layout(constant_id = NET_ID + 7) const uint DTYPES_RATE = 0u; // of A and d, a byte each
layout(constant_id = NET_ID + 8) const uint UNIT_EPS = 0u;    // float bits: added to the squares of the lengths of q and k

const uint ALL_KEYS = KEY_HEADS * KEY_DIM, ALL_VALUES = VALUE_HEADS * VALUE_DIM, MIXED = 2u * ALL_KEYS + ALL_VALUES;
const uint HEAD_ROWS = THREADS / 16u, HEAD_GROUPS = VALUE_DIM / HEAD_ROWS; // of S of a workgroup, and workgroups of a head

// The first product: x and z, or q, k and v of layers with attention.
#define Q_ROWS (IS_NET ? MIXED : ATTENDED_ROWS)
#define K_ROWS (IS_NET ? ALL_VALUES : ALL_KV)
#define QKV_ROWS ((IS_NET ? MIXED + ALL_VALUES : ATTENDED_ROWS + 2u * ALL_KV) / GRID)

// Words: x after the convolution, z, outputs of heads, b and a of each head, and squares of parts of outputs.
const uint AT_X = AT_NET, AT_Z = AT_X + 4u * MIXED, AT_OUTPUTS = AT_Z + 4u * ALL_VALUES, AT_RATES = AT_OUTPUTS + 4u * ALL_VALUES,
           AT_SQUARES = AT_RATES + 8u * VALUE_HEADS;
