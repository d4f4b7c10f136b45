// Codes of 4 and 8 bits as float16 without a conversion: 0x6400 | n is 1024 + n, 0x5400 | n << 4 is 64 + n.
//
// An instruction of NVIDIA's applies both the mask and the 0x64006400 if only one of them is a constant. So the
// compiler must not see the latter as a constant: find_bases takes a zero that is computed.

// Two float16, from a word and to one.
#define PAIR f16vec2
PAIR pair_of(uint word) { return unpackFloat2x16(word); }
uint word_of(PAIR x) { return packFloat2x16(x); }

uint low_base, high_base;

void find_bases(uint zero) {
    low_base = 0x64006400u | zero;
    high_base = 0x54005400u | zero;
}

PAIR low_nibbles(uint u) { return pair_of((u & 0x000f000fu) | low_base) - PAIR(1024.0hf); }
PAIR high_nibbles(uint u) { return pair_of((u & 0x00f000f0u) | high_base) - PAIR(64.0hf); }
PAIR bytes(uint u) { return pair_of((u & 0x00ff00ffu) | low_base) - PAIR(1024.0hf); }
