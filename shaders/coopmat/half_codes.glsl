// Codes of 4 and 8 bits as float16 without a conversion: 0x6400 | n is 1024 + n, 0x5400 | n << 4 is 64 + n.
//
// An instruction of NVIDIA's does both the mask and the 0x64006400 where only one of them is a constant, so the latter is one that the
// compiler cannot see: find_bases takes a zero that is computed.

uint low_base, high_base;

void find_bases(uint zero) {
    low_base = 0x64006400u | zero;
    high_base = 0x54005400u | zero;
}

f16vec2 low_nibbles(uint u) { return unpackFloat2x16((u & 0x000f000fu) | low_base) - f16vec2(1024.0hf); }
f16vec2 high_nibbles(uint u) { return unpackFloat2x16((u & 0x00f000f0u) | high_base) - f16vec2(64.0hf); }
f16vec2 bytes(uint u) { return unpackFloat2x16((u & 0x00ff00ffu) | low_base) - f16vec2(1024.0hf); }
