// The third phase of a layer: y = x / rms(x) * w, and h = activation(G y) * (U y) for some features. Their columns of
// the down projection times h, and the carried residual, are added to the next layer's residual. Also zeroes what the
// next layer adds to.
//
// A workgroup handles BLOCKS consecutive blocks of 8 features (the last ones may have fewer). 32 lanes make the gate
// and up rows of one feature of each block. Scales and biases of gate and up come packed, [feature][group][gate, up].
// Codes of the down projection come transposed as load_columns() says, its scales and biases packed, [group][row].

const uint ALL_BLOCKS = INTERMEDIATE / 8u;
const uint BLOCKS = (ALL_BLOCKS + WORKGROUPS - 1u) / WORKGROUPS;
const uint BLOCK_ROUNDS = (BLOCKS + 3u) / 4u; // 32 features at a time
const uint TOGETHER =
    CODE_BITS(GATE_UP_FORMAT) == 8u && CHUNK_ROUNDS > 1u ? 2u : 4u; // blocks whose gates are made at a time: registers are few
const uint GATE_ROUNDS = (BLOCKS + TOGETHER - 1u) / TOGETHER;
const uint GATE_GROUPS = HIDDEN / GROUP_SIZE(GATE_UP_FORMAT);
const uint AHEAD = BLOCKS < 4u ? BLOCKS : 4u; // blocks of the down projection that are asked for early

shared float hidden[BLOCK_ROUNDS * 32u];

bool together(uint round, uint i) { return i < TOGETHER && TOGETHER * round + i < BLOCKS; }

struct Pairs {
    Codes32 codes[8];
    uvec2 scales_biases[4];
}; // gate and up of one row of four blocks

// Rows of the blocks of a round.
Pairs load_pairs(uint round, uint chunk) {
    Pairs w;
    uint at = min(chunk, CHUNKS - 1u);
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        if (!together(round, i)) continue;
        uint block = min(gl_WorkGroupID.x * BLOCKS + TOGETHER * round + i, ALL_BLOCKS - 1u);
        uint feature = block * 8u + warp();
        w.codes[2u * i] = load_codes(ADDRESS(GATE), feature * CHUNKS + at, GATE_UP_FORMAT);
        w.codes[2u * i + 1u] = load_codes(ADDRESS(UP), feature * CHUNKS + at, GATE_UP_FORMAT);
        w.scales_biases[i] = Weights2(ADDRESS(MLP_SCALES_BIASES)).v[feature * GATE_GROUPS + at * 32u / GROUP_SIZE(GATE_UP_FORMAT)];
    }
    return w;
}

void mlp() {
    uint first = gl_WorkGroupID.x * BLOCKS;
    Pairs w = load_pairs(0u, lane());
    Rows rows;
    load_norm(ADDRESS(NORMS) + AT_MLP_NORM, rows);
    PartNorm part_norm;
    if (POST_NORM != 0u) {
        load_part_norm(ADDRESS(NORMS) + AT_AFTER_NORM, part_norm);
        if (IS_FIRST(1u)) load_carried(0u);
    }
    IF_BARRIERS(load_residual(state_after(LAYER), rows));
    Codes32 codes[AHEAD];
    uvec4 scales_biases[AHEAD];
    [[unroll]] for (uint b = 0; b < AHEAD; b++) {
        uint block = min(first + b, ALL_BLOCKS - 1u), quad = min(thread(), QUADS - 1u);
        codes[b] = load_columns(ADDRESS(DOWN), block, quad, DOWN_FORMAT);
        scales_biases[b] = Weights4(ADDRESS(DOWN_SCALES_BIASES)).v[block * 8u / GROUP_SIZE(DOWN_FORMAT) * QUADS + quad];
    }
    uint now = position();

    IF_POLLING(load_residual(state_after(LAYER), rows));
    if (POST_NORM != 0u) {
        add_part(part_norm, rows);
        keep_residual(rows);
        if (IS_LAST(8u)) store_carried(1u);
    }
    norm_to_shared(rows, GATE_UP_FORMAT);
    Carry carry;
    take_carry(state_after(LAYER), carry); // complete, since all threads have read their part
    float scale = norm_scale();
    [[unroll]] for (uint round = 0; round < GATE_ROUNDS; round++) {
        float sums[8];
        [[unroll]] for (uint i = 0; i < 8u; i++)
            sums[i] = 0.0;
        if (round > 0u) w = load_pairs(round, lane());
        [[unroll]] for (uint chunks = 0; chunks < CHUNK_ROUNDS; chunks++) {
            uint chunk = lane() + 32u * chunks;
            Pairs next;
            if (chunks + 1u < CHUNK_ROUNDS) next = load_pairs(round, chunk + 32u);
            if (chunk < CHUNKS) {
                Chunk c = chunk_get(chunk);
                [[unroll]] for (uint i = 0; i < 4u; i++) {
                    if (!together(round, i)) continue;
                    sums[2u * i] += chunk_dot(w.codes[2u * i], w.scales_biases[i].x, c, GATE_UP_FORMAT, 0u);
                    sums[2u * i + 1u] += chunk_dot(w.codes[2u * i + 1u], w.scales_biases[i].y, c, GATE_UP_FORMAT, 1u);
                }
            }
            if (chunks + 1u < CHUNK_ROUNDS) w = next;
        }
        float x = lane_sum8(sums) * scale; // gate of block lane / 8 in its first 4 lanes, up in the others
        float up = lane_xor(x, 4u);
        uint block = TOGETHER * round + (lane() >> 3);
        bool there = block < BLOCKS && first + block < ALL_BLOCKS;
        if ((lane() & 7u) == 0u && (lane() >> 3) < TOGETHER) hidden[block * 8u + warp()] = there ? activation(x, ACTIVATION) * up : 0.0;
    }
    barrier();

    vec4 out_rows[QUAD_ROUNDS];
    [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++)
        out_rows[n] = vec4(0);
    [[unroll]] for (uint round = 0; round < BLOCK_ROUNDS; round++) {
        Blocks q = blocks_make(hidden[round * 32u + lane()], DOWN_FORMAT);
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            uint b = 4u * round + i;
            if (b >= BLOCKS) continue;
            Block block = block_get(q, i, DOWN_FORMAT);
            uint at = min(first + b, ALL_BLOCKS - 1u);
            [[unroll]] for (uint n = 0; n < QUAD_ROUNDS; n++) {
                uint quad = thread() + n * THREADS;
                if (quad >= QUADS) continue;
                Codes32 c;
                uvec4 a;
                if (n == 0u && b < AHEAD) {
                    c = codes[b];
                    a = scales_biases[b];
                } else {
                    c = load_columns(ADDRESS(DOWN), at, quad, DOWN_FORMAT);
                    a = Weights4(ADDRESS(DOWN_SCALES_BIASES)).v[at * 8u / GROUP_SIZE(DOWN_FORMAT) * QUADS + quad];
                }
                out_rows[n] += columns_dot(c, a, block, DOWN_FORMAT, at);
            }
        }
    }
    if (RESIDUAL_SCALE != ONE) [[unroll]]
        for (uint n = 0; n < QUAD_ROUNDS; n++) out_rows[n] *= uintBitsToFloat(RESIDUAL_SCALE);
    residual_add(state_before(LAYER + 1u), out_rows, carry);

#ifndef POLL
    clear_layer(LAYER, now);
#endif
}
