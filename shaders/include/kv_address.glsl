// Where keys and values are in a cache: the only place that knows for the kernels that read and write it.
//
//   keys    (sequence, key/value head, HEAD_DIM / BLOCK_KEYS, capacity, BLOCK_KEYS)
//   values  (sequence, key/value head, HEAD_DIM / BLOCK_VALUES, capacity, BLOCK_VALUES)
//
// A block of features of a position lies beside the same block of the next position. The includer has HEAD_DIM, KV_HEADS, DTYPE_KV and
// pc.p.capacity. Kernels with other blocks than those of decoding define OWN_BLOCKS and have constants of these names.
//
// Where a kernel defines PAGE_TABLE and its constant PAGE is not 0, positions are in pages of so many. A page is like a sequence of the
// form above whose capacity is PAGE. PAGE_TABLE is the address of int32 (sequence, pages of one), and pc.p.pages counts the pages there are.
// pc.p.capacity then is PAGE more than a table has room for. Positions of that last page are never written.
//
// Elements are floats, or with DTYPE_KV DTYPE_U8 bytes of the words of kv_codes.glsl, four features each.
//
// Kernels that take keys and values of any strides define KV_STRIDES and have DTYPE_KV alone. They get other functions. With KV_PAGES they
// have PAGE too. Where that is not 0, positions are in pages of so many, and the first stride is from page to page.

const uint KV_BYTES = DTYPE_KV == DTYPE_F32 ? 4u : DTYPE_KV == DTYPE_U8 ? 1u : 2u;

#ifdef KV_STRIDES

#ifndef KV_PAGES
const uint PAGE = 0u;
#endif
uint64_t kv_pages; // the pages of a sequence, int32, where there are any

// The first position of a page, beside that of page 0.
uint64_t kv_page_offset(int strides[3], uint page) { return uint64_t(page) * uint64_t(strides[0]) * KV_BYTES; }

// The first position of a head, or where it would be in page 0; strides are elements of sequences, heads and positions.
uint64_t kv_head_address(uint64_t cache, int strides[3], uint sequence, uint head) {
    return element_address(cache, (PAGE != 0u ? 0 : int(sequence) * strides[0]) + int(head) * strides[1], KV_BYTES);
}

// A position of that head, and in it the feature that is `feature` elements further.
uint64_t kv_address(uint64_t head, int strides[3], uint position, int feature) {
    if (PAGE == 0u) return element_address(head, int(position) * strides[2] + feature, KV_BYTES);
    uint64_t page = kv_page_offset(strides, uint(I32s(kv_pages).v[position / PAGE]));
    return element_address(head + page, int(position % PAGE) * strides[2] + feature, KV_BYTES);
}

#else

#ifndef OWN_BLOCKS
const uint BLOCK_KEYS = 4u, BLOCK_VALUES = 8u;
#endif
#ifndef PAGE_TABLE
const uint PAGE = 0u;
#endif

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer PageNumbers { int v[]; };

// The page that has a position of a sequence. Numbers that name no page count as the nearest one.
uint kv_page(uint sequence, uint position) {
#ifdef PAGE_TABLE
    if (PAGE == 0u) return 0u;
    uint columns = pc.p.capacity / PAGE - 1u;
    return uint(clamp(PageNumbers(PAGE_TABLE).v[sequence * columns + min(position / PAGE, columns - 1u)], 0, int(pc.p.pages) - 1));
#else
    return 0u;
#endif
}

// Where a position is: its sequence or its page, and its place there.
uvec2 kv_place(uint page, uint sequence, uint position) {
    if (PAGE == 0u) return uvec2(sequence, position);
    return uvec2(page, position % PAGE);
}
uvec2 kv_place(uint sequence, uint position) { return kv_place(kv_page(sequence, position), sequence, position); }

// Whether a position may be written.
bool kv_has_room(uint position) { return PAGE == 0u || position < pc.p.capacity - PAGE; }

// The last position that a token sees: its own, or without room the last one of its pages.
uint kv_seen(uint position) {
    if (PAGE == 0u) return position;
    return min(position, pc.p.capacity - PAGE - 1u);
}

// Counting all elements may take 64 bits; 32 are enough for those of a head.
uint64_t kv_address(uint64_t cache, uint features, uvec2 place, uint head, uint block) {
    uint room = PAGE == 0u ? pc.p.capacity : PAGE;
    uint64_t of_head = cache + uint64_t(room) * ((place.x * KV_HEADS + head) * (HEAD_DIM * KV_BYTES));
    return of_head + uint64_t(block * room + place.y) * (features * KV_BYTES);
}

// The first of the BLOCK_KEYS features of a block of a key; `keys` is the cache.
uint64_t key_address(uint64_t keys, uvec2 place, uint head, uint block) { return kv_address(keys, BLOCK_KEYS, place, head, block); }

// The first of the BLOCK_VALUES features of a block of a value.
uint64_t value_address(uint64_t values, uvec2 place, uint head, uint block) { return kv_address(values, BLOCK_VALUES, place, head, block); }

#endif
