// Prefetch warps: they load one word of every 32-byte sector of a workgroup's weights of the next layer. L2 then holds
// them when the computing warps want them. Computing warps would otherwise all load the same phase's weights at once,
// and their polls of accumulators would queue after the loads. A hint only: words that are not in the cache take longer, and
// that is all.

const uint SECTOR = 32u; // bytes that caches fill at once
// Of a row of codes.
const uint QKV_ROW_BYTES = HIDDEN * CODE_BITS(QKV_FORMAT) / 8u, GATE_ROW_BYTES = HIDDEN * CODE_BITS(GATE_UP_FORMAT) / 8u;

// Bytes that a workgroup reads in a layer. Where those of two layers would drive each other out, the feed-forward part's are
// brought in the layer that reads them.
const uint ATTENTION_BYTES = (HEADS + 2u) * QKV_ROW_BYTES + HEADS * (HIDDEN * CODE_BITS(O_FORMAT) / 8u); // of a feature of a key/value head
const uint FEED_BYTES = 2u * GATE_ROW_BYTES + HIDDEN * CODE_BITS(DOWN_FORMAT) / 8u;                      // of a feature
const uint LAYER_BYTES = (ATTENTION_BYTES * KV_HEADS * HEAD_DIM + FEED_BYTES * INTERMEDIATE) / WORKGROUPS;
const uint FEED_AHEAD = LAYER_BYTES > 65536u ? 0u : 1u;
#define ADDRESS_FEED(which) (pack64(addresses[(layer + FEED_AHEAD - pc.p.layer) * COLUMNS + which]))

const uint STRIDE = PREFETCH_THREADS * SECTOR; // all prefetch threads, a sector each

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Sectors { uint v[]; };

uint loaded = 0u;

// `bytes` from an address on, at most `most`.
void prefetch(uint64_t from, uint bytes, uint most) {
    uint offset = (thread() - THREADS) * SECTOR;
    [[unroll]] for (uint at = 0; at < most; at += STRIDE)
        if (at + offset < bytes) loaded ^= Sectors(from + uint64_t(at + offset)).v[0];
}

// Features from the first ones of a slice of q or k to their partners.
uint partner_distance() { return ROPE_DIMS == 0u ? HEAD_DIM / 2u : 4u * (rope_quad(ROPE_HALF + slice()) - rope_quad(slice())); }

// 8 features of a slice of q, k or v, as two runs of 4 rows.
void prefetch_rows(uint64_t codes, uint feature, uint next) {
    const uint bytes = 4u * QKV_ROW_BYTES;
    prefetch(codes + uint64_t(feature * QKV_ROW_BYTES), bytes, bytes);
    prefetch(codes + uint64_t((feature + next) * QKV_ROW_BYTES), bytes, bytes);
}

void prefetch_qkv() {
    [[unroll]] for (uint i = 0; i < HEADS; i++)
        prefetch_rows(ADDRESS_AHEAD(Q), (kv_head() * HEADS + i) * HEAD_DIM + 4u * rope_quad(slice()), partner_distance());
    prefetch_rows(ADDRESS_AHEAD(K), kv_head() * HEAD_DIM + 4u * rope_quad(slice()), partner_distance());
    prefetch_rows(ADDRESS_AHEAD(V), kv_head() * HEAD_DIM + 8u * slice(), 4u);
    const uint bytes = TASKS * QKV_GROUPS * 16u;
    prefetch(ADDRESS_AHEAD(QKV_SCALES_BIASES) + uint64_t(gl_WorkGroupID.x * bytes), bytes, bytes);
}

// Blocks of 8 features that this workgroup has in the third phase: the last ones may have fewer.
uint blocks_here() { return min(BLOCKS, ALL_BLOCKS - min(gl_WorkGroupID.x * BLOCKS, ALL_BLOCKS)); }

void prefetch_gate_up() {
    const uint codes = 8u * GATE_ROW_BYTES, scales_biases = 8u * GATE_GROUPS * 8u; // of a block
    uint first = gl_WorkGroupID.x * BLOCKS;
    prefetch(ADDRESS_FEED(GATE) + uint64_t(first * codes), blocks_here() * codes, BLOCKS * codes);
    prefetch(ADDRESS_FEED(UP) + uint64_t(first * codes), blocks_here() * codes, BLOCKS * codes);
    prefetch(ADDRESS_FEED(MLP_SCALES_BIASES) + uint64_t(first * scales_biases), blocks_here() * scales_biases, BLOCKS * scales_biases);
}

void prefetch_down() {
    const uint row = QUADS * 16u, codes = row * CODE_WORDS(DOWN_FORMAT),
               size = GROUP_SIZE(DOWN_FORMAT); // of a group's scales and biases, of a block's codes
    uint first = gl_WorkGroupID.x * BLOCKS, group = first * 8u / size, behind = (first + blocks_here()) * 8u;
    prefetch(ADDRESS_FEED(DOWN) + uint64_t(first * codes), blocks_here() * codes, BLOCKS * codes);
    uint groups = blocks_here() == 0u ? 0u : (behind - 1u) / size + 1u - group;
    prefetch(ADDRESS_FEED(DOWN_SCALES_BIASES) + uint64_t(group * row), groups * row, (BLOCKS * 8u / size + 2u) * row);
}

// The loop of the prefetch warps: qkv a layer ahead, the feed-forward part too if there is room. In each layer there are as many barriers as
// in qkv, attention and mlp.
void prefetch_layers() {
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers; layer++) {
        bool ahead = layer + 1u < pc.p.layer + pc.p.layers;
        if (FEED_AHEAD == 0u) prefetch_gate_up();
        else if (ahead) prefetch_down();
        barrier();
        barrier();
        for (uint pair = 0; pair < PAIRS; pair++) {
            if (pair > 0u) barrier();
            barrier();
        }
        if (FEED_AHEAD == 0u) prefetch_down();
        else if (ahead) prefetch_gate_up();
        barrier();
        if (ahead) prefetch_qkv();
        barrier();
    }
    if (loaded == 1u) Shared1(pc.address[STATUS]).v[1] = loaded; // or a compiler would drop the unused loads
}
