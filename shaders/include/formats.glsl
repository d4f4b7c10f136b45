// Formats of products, a byte each: bits of a code / 4, then log2(group / 32) << 3, then a mask << 5. The mask has a bit for
// each matrix whose codes are symmetric, and is 7 if those of all are. schedule/decoder/formats.ts makes them.
//
// A word has a scale (low half) and a bias for each group of affine codes. Symmetric codes are 2^(bits - 1) too large and
// have no bias, but a scale for each 16: a word has those of 32 weights. So both are loaded alike. The matrices of a
// product have codes of as many bits and words of as many weights.

#define FORMAT(word, i) ((word) >> 8u * (i) & 255u)
#define CODE_BITS(format) (4u * ((format) & 7u))
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
