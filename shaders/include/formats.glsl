// Formats of products, a byte each: bits of a code / 4, then log2(group / 32) << 3, then a mask << 5. The mask has a bit for
// each matrix whose codes are symmetric, and is 7 if those of all are. schedule/decoder/formats.ts makes them. The first
// three bits are 3 for mxfp4 and 7 for nvfp4, whose codes are small floats of 4 bits.
//
// A word has a scale (low half) and a bias for each group of affine codes. Symmetric codes are 2^(bits - 1) too large and
// have no bias, but a scale for each 16: a word has those of 32 weights. So both are loaded alike. The matrices of a
// product have codes of as many bits and words of as many weights. Scales of
// small floats are bytes: a power of two for each 32 weights of mxfp4, an e4m3 number for each 16 of nvfp4. A word has those
// of four or two neighbouring rows for 32 weights.

#define FORMAT(word, i) ((word) >> 8u * (i) & 255u)
#define IS_E2M1(format) (((format) & 3u) == 3u)
#define CODE_BITS(format) (IS_E2M1(format) ? 4u : 4u * ((format) & 7u))
#define SCALE_BYTES(format) (1u + ((format) >> 2 & 1u)) // of small floats, for 32 weights of a row
// Words beside the codes of a group of `rows` neighbouring rows.
#define GROUP_WORDS(format, rows) (IS_E2M1(format) ? ((rows) * SCALE_BYTES(format) + 3u) / 4u : (rows))
#define GROUP_SIZE(format) (32u << ((format) >> 3 & 3u))
#define SYMMETRIC(format) ((format) >> 5)
#define CODE_WORDS(format) (CODE_BITS(format) / 4u) // words of codes of 8 features

const uint QKV_FORMAT = FORMAT(FORMATS, 0u), O_FORMAT = FORMAT(FORMATS, 1u), GATE_UP_FORMAT = FORMAT(FORMATS, 2u),
           DOWN_FORMAT = FORMAT(FORMATS, 3u);
const uint HEAD_FORMAT = FORMAT(END_FORMATS, 0u), TABLE_FORMAT = FORMAT(END_FORMATS, 1u);

// Whether a matrix of a product has symmetric codes. A constant where all have or none.
bool is_symmetric(const uint format, uint matrix) {
    if (SYMMETRIC(format) == 0u || SYMMETRIC(format) == 7u) return SYMMETRIC(format) == 7u;
    return (SYMMETRIC(format) >> matrix & 1u) != 0u;
}
