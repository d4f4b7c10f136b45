// Where keys and values are in a cache: the only place that knows for the kernels that read and write it.
//
//   keys    (sequence, key/value head, HEAD_DIM / BLOCK_KEYS, capacity, BLOCK_KEYS)
//   values  (sequence, key/value head, HEAD_DIM / BLOCK_VALUES, capacity, BLOCK_VALUES)
//
// A block of features of a position lies beside the same block of the next position. The includer has HEAD_DIM, KV_HEADS, DTYPE_KV and
// pc.p.capacity. Kernels with other blocks than those of decoding define OWN_BLOCKS and have constants of these names.
//
// Kernels that take keys and values of any strides define KV_STRIDES and have DTYPE_KV alone. They get other functions. With KV_PAGES they
// have PAGE too. If it is not 0, positions lie in pages of so many, and the first stride is from page to page.

const uint KV_BYTES = DTYPE_KV == DTYPE_F32 ? 4u : 2u;

#ifdef KV_STRIDES

#ifndef KV_PAGES
const uint PAGE = 0u;
#endif
uint64_t kv_pages; // the pages of a sequence, int32, where there are any

// The first position of a head, or where it would be in page 0; strides are elements of sequences, heads and positions.
uint64_t kv_head_address(uint64_t cache, int strides[3], uint sequence, uint head) {
    return element_address(cache, (PAGE != 0u ? 0 : int(sequence) * strides[0]) + int(head) * strides[1], KV_BYTES);
}

// A position of that head, and in it the feature that is `feature` elements further.
uint64_t kv_address(uint64_t head, int strides[3], uint position, int feature) {
    if (PAGE == 0u) return element_address(head, int(position) * strides[2] + feature, KV_BYTES);
    uint64_t page = uint64_t(I32s(kv_pages).v[position / PAGE]) * uint64_t(strides[0]);
    return element_address(head + page * KV_BYTES, int(position % PAGE) * strides[2] + feature, KV_BYTES);
}

#else

#ifndef OWN_BLOCKS
const uint BLOCK_KEYS = 4u, BLOCK_VALUES = 8u;
#endif

// Counting all elements may take 64 bits; 32 are enough for those of a head.
uint64_t kv_address(uint64_t cache, uint features, uint sequence, uint head, uint block, uint position) {
    uint64_t of_head = cache + uint64_t(pc.p.capacity) * ((sequence * KV_HEADS + head) * (HEAD_DIM * KV_BYTES));
    return of_head + uint64_t(block * pc.p.capacity + position) * (features * KV_BYTES);
}

// The first of the BLOCK_KEYS features of a block of a key; `keys` is the cache.
uint64_t key_address(uint64_t keys, uint sequence, uint head, uint block, uint position) {
    return kv_address(keys, BLOCK_KEYS, sequence, head, block, position);
}

// The first of the BLOCK_VALUES features of a block of a value.
uint64_t value_address(uint64_t values, uint sequence, uint head, uint block, uint position) {
    return kv_address(values, BLOCK_VALUES, sequence, head, block, position);
}

#endif
