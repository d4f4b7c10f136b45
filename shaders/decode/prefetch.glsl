// Warps that bring a workgroup's weights of the next layer near: they read a word of every 32 bytes, and caches keep the rest.
// Those who compute would otherwise all ask for the same phase's weights at once, behind which their looks at sums stand in line.
//
// Without a promise of any kind: what is not near when it is asked for takes longer, and that is all.

const uint SECTOR = 32u; // bytes that caches fill at once
const uint ROW_BYTES = HIDDEN * BITS / 8u; // of a row of codes

// Bytes that a workgroup reads in a layer. Where those of two layers would drive each other out, the feed-forward part's are
// brought in the layer that reads them.
const uint LAYER_BYTES = ROW_BYTES * (2u * (HEADS + 1u) * KV_HEADS * HEAD_DIM + 3u * INTERMEDIATE) / WORKGROUPS;
const uint FEED_AHEAD = LAYER_BYTES > 65536u ? 0u : 1u;
#define ADDRESS_FEED(which) (pack64(addresses[(layer + FEED_AHEAD - pc.p.layer) * COLUMNS + which]))

const uint REACHED = HELPERS * SECTOR; // by all helpers with a word each

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Touched { uint v[]; };

uint touched = 0u;

// `bytes` from an address on, at most `most`.
void touch(uint64_t from, uint bytes, uint most) {
    uint helper = (thread() - THREADS) * SECTOR;
    [[unroll]] for (uint at = 0; at < most; at += REACHED)
        if (at + helper < bytes) touched ^= Touched(from + uint64_t(at + helper)).v[0];
}

// 8 features of a slice of q, k or v, as two runs of 4 rows.
void touch_rows(uint64_t codes, uint feature, uint next) {
    const uint bytes = 4u * ROW_BYTES;
    touch(codes + uint64_t(feature * ROW_BYTES), bytes, bytes);
    touch(codes + uint64_t((feature + next) * ROW_BYTES), bytes, bytes);
}

void near_qkv() {
    [[unroll]] for (uint i = 0; i < HEADS; i++)
        touch_rows(ADDRESS_AHEAD(Q), (kv_head() * HEADS + i) * HEAD_DIM + 4u * slice(), HEAD_DIM / 2u);
    touch_rows(ADDRESS_AHEAD(K), kv_head() * HEAD_DIM + 4u * slice(), HEAD_DIM / 2u);
    touch_rows(ADDRESS_AHEAD(V), kv_head() * HEAD_DIM + 8u * slice(), 4u);
    const uint bytes = TASKS * GROUPS * 16u;
    touch(ADDRESS_AHEAD(QKV_AFFINE) + uint64_t(gl_WorkGroupID.x * bytes), bytes, bytes);
}

// Blocks of 8 features that this workgroup has in the third phase: the last ones may have fewer.
uint blocks_here() { return min(BLOCKS, ALL_BLOCKS - min(gl_WorkGroupID.x * BLOCKS, ALL_BLOCKS)); }

void near_gate_up() {
    const uint codes = 8u * ROW_BYTES, affine = 8u * GROUPS * 8u; // of a block
    uint first = gl_WorkGroupID.x * BLOCKS;
    touch(ADDRESS_FEED(GATE) + uint64_t(first * codes), blocks_here() * codes, BLOCKS * codes);
    touch(ADDRESS_FEED(UP) + uint64_t(first * codes), blocks_here() * codes, BLOCKS * codes);
    touch(ADDRESS_FEED(MLP_AFFINE) + uint64_t(first * affine), blocks_here() * affine, BLOCKS * affine);
}

void near_down() {
    const uint row = QUADS * 16u, codes = row * CODE_WORDS; // of a group's scales and biases, of a block's codes
    uint first = gl_WorkGroupID.x * BLOCKS, group = first * 8u / GROUP, behind = (first + blocks_here()) * 8u;
    touch(ADDRESS_FEED(DOWN) + uint64_t(first * codes), blocks_here() * codes, BLOCKS * codes);
    uint groups = blocks_here() == 0u ? 0u : (behind - 1u) / GROUP + 1u - group;
    touch(ADDRESS_FEED(DOWN_AFFINE) + uint64_t(group * row), groups * row, (BLOCKS * 8u / GROUP + 2u) * row);
}

// What helpers do: qkv a layer ahead, the feed-forward part too where there is room. In each layer there are as many barriers as
// in qkv, attend and mlp.
void help() {
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers; layer++) {
        bool ahead = layer + 1u < pc.p.layer + pc.p.layers;
        if (FEED_AHEAD == 0u) near_gate_up();
        else if (ahead) near_down();
        barrier();
        barrier();
        for (uint pair = 0; pair < PAIRS; pair++) {
            if (pair > 0u) barrier();
            barrier();
        }
        if (FEED_AHEAD == 0u) near_down();
        else if (ahead) near_gate_up();
        barrier();
        if (ahead) near_qkv();
        barrier();
    }
    if (touched == 1u) Shared1(pc.address[STATUS]).v[1] = touched; // or compilers would see that nobody needs what was touched
}
