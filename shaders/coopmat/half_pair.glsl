// Two numbers as float16: a larger one becomes the largest one, NaN stays. In words, since this runs for every key.
uint half_pair(vec2 x) {
    uint pair = packHalf2x16(x), other = (pair & 0x7fff7fffu) ^ 0x7c007c00u; // 0 where a half is infinite
    return pair - (((other - 0x00010001u) & ~other & 0x80008000u) >> 15);
}
