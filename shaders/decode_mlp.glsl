// The third phase of a layer: y = x / rms(x) * w; h = silu(G y) * (U y) for some features; their columns of the down
// projection times h, added to the next layer's residual with the residual before. Also zeroes what the next layer adds to.
//
// A workgroup handles BLOCKS consecutive blocks of 8 features (the last ones may have fewer); 32 lanes make the gate and up
// rows of one feature of each block. Scales and biases of gate and up come packed, [feature][group][gate, up]; codes of the
// down projection transposed, [feature / 8][row], its scales and biases packed, [group][row].

const uint ALL_BLOCKS = INTERMEDIATE / 8u;
const uint BLOCKS = (ALL_BLOCKS + WORKGROUPS - 1u) / WORKGROUPS;
const uint BLOCK_ROUNDS = (BLOCKS + 3u) / 4u; // 4 blocks at a time: 8 rows, or 32 features
const uint AHEAD = BLOCKS < 4u ? BLOCKS : 4u; // words of the down projection that are asked for early

shared float hidden[BLOCK_ROUNDS * 32u];

struct Pairs { uvec4 codes[8]; uvec2 affine[4]; }; // gate and up of one row of four blocks

// Rows of 4 blocks from `block` on.
Pairs load_pairs(uint round, uint chunk) {
    Pairs w;
    uint at = min(chunk, CHUNKS - 1u);
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        if (4u * round + i >= BLOCKS) continue;
        uint block = min(gl_WorkGroupID.x * BLOCKS + 4u * round + i, ALL_BLOCKS - 1u);
        uint feature = block * 8u + warp();
        w.codes[2u * i] = Weights4(ADDRESS(GATE)).v[feature * CHUNKS + at];
        w.codes[2u * i + 1u] = Weights4(ADDRESS(UP)).v[feature * CHUNKS + at];
        w.affine[i] = Weights2(ADDRESS(MLP_AFFINE)).v[feature * GROUPS + at * 32u / GROUP];
    }
    return w;
}

// What the parts of the phase hand on.
Pairs pairs;
uvec4 down_codes[AHEAD], down_affine[AHEAD];
Carry mlp_carry;

// The normalised residual.
void mlp_norm() {
    uint first = gl_WorkGroupID.x * BLOCKS;
    pairs = load_pairs(0u, lane());
    Rows rows;
    load_norm(ADDRESS(MLP_NORM), rows);
    PLAIN(load_residual(state_after(LAYER), rows));
    [[unroll]] for (uint b = 0; b < AHEAD; b++) {
        uint block = min(first + b, ALL_BLOCKS - 1u), quad = min(thread(), QUADS - 1u);
        down_codes[b] = Weights4(ADDRESS(DOWN)).v[block * QUADS + quad];
        down_affine[b] = Weights4(ADDRESS(DOWN_AFFINE)).v[block * 8u / GROUP * QUADS + quad];
    }
    PLAIN(now = position());
    POLLED(load_residual(state_after(LAYER), rows));
    norm_to_shared(rows);
}

// silu(G y) * (U y).
void mlp_hidden() {
    uint first = gl_WorkGroupID.x * BLOCKS;
    load_carry(state_after(LAYER), mlp_carry); // complete, since all threads have read their part
    float scale = norm_scale();
    [[unroll]] for (uint round = 0; round < BLOCK_ROUNDS; round++) {
        float sums[8];
        [[unroll]] for (uint i = 0; i < 8u; i++) sums[i] = 0.0;
        if (round > 0u) pairs = load_pairs(round, lane());
        [[unroll]] for (uint chunks = 0; chunks < CHUNK_ROUNDS; chunks++) {
            uint chunk = lane() + 32u * chunks;
            Pairs next;
            if (chunks + 1u < CHUNK_ROUNDS) next = load_pairs(round, chunk + 32u);
            if (chunk < CHUNKS) {
                Chunk c = chunk_get(chunk);
                [[unroll]] for (uint i = 0; i < 4u; i++) {
                    if (4u * round + i >= BLOCKS) continue;
                    sums[2u * i] += chunk_dot(pairs.codes[2u * i], pairs.affine[i].x, c);
                    sums[2u * i + 1u] += chunk_dot(pairs.codes[2u * i + 1u], pairs.affine[i].y, c);
                }
            }
            if (chunks + 1u < CHUNK_ROUNDS) pairs = next;
        }
        float x = lane_sum8(sums) * scale; // gate of block lane / 8 in its first 4 lanes, up in the others
        float up = lane_xor(x, 4u);
        uint block = 4u * round + (lane() >> 3);
        bool there = block < BLOCKS && first + block < ALL_BLOCKS;
        if ((lane() & 7u) == 0u) hidden[block * 8u + warp()] = there ? x / (1.0 + exp(-x)) * up : 0.0;
    }
}

// Their columns of the down projection.
void mlp_rows() {
    uint first = gl_WorkGroupID.x * BLOCKS;
    vec4 out_rows[QUAD_ROUNDS];
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) out_rows[n] = vec4(0);
    [[unroll]] for (uint round = 0; round < BLOCK_ROUNDS; round++) {
        Blocks q = blocks_make(hidden[round * 32u + lane()]);
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            uint b = 4u * round + i;
            if (b >= BLOCKS) continue;
            Block block = block_get(q, i);
            uint at = min(first + b, ALL_BLOCKS - 1u);
            [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
                uint quad = thread() + n * THREADS;
                if (quad >= QUADS) continue;
                uvec4 c, a;
                if (n == 0u && b < AHEAD) {
                    c = down_codes[b];
                    a = down_affine[b];
                } else {
                    c = Weights4(ADDRESS(DOWN)).v[at * QUADS + quad];
                    a = Weights4(ADDRESS(DOWN_AFFINE)).v[at * 8u / GROUP * QUADS + quad];
                }
                out_rows[n] += block_dot4(c, a, block);
            }
        }
    }
    residual_add(state_before(LAYER + 1u), out_rows, mlp_carry);

#ifndef POLL
    clear_behind(LAYER, now);
#endif
}
