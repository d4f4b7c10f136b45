// Elements of a radix sort as they lie in memory, and their digits of 8 bits.

const uint ITEMS = RADIX_ITEMS;
const uint TILE = ITEMS * THREADS;
const uint DIGITS = 256u;

const uint DTYPE_RAW = DTYPE_BYTES(DTYPE) == 4u ? DTYPE_U32 : DTYPE_BYTES(DTYPE) == 2u ? DTYPE_U16 : DTYPE_U8;

uint digit_of(uint raw) { return (raw_key(raw, DTYPE) >> pc.p.shift) & (DIGITS - 1u); }

// Element u of this thread in a tile of `count` elements that begins at `first`, lanes contiguous. Past the end it is
// the last element.
uint load_raw_item(uint64_t address, uint first, uint count, uint u) {
    return load_bits(address, first + min(u * THREADS + gl_LocalInvocationID.x, count - 1u), DTYPE_RAW);
}
