// h = silu(G y) * (U y) of eight sequences with y = x / rms(x) * w, for some features, left in blocks of 8 in 16 bits.
//
// A tile is GATE_UP_BLOCKS blocks of 8 features; a task is gate and up of two neighbouring features. Scales and biases lie as
// decode_mlp.glsl says.

const uint FEATURE_BLOCKS = INTERMEDIATE / 8u;

Weights load_gate_up(uint block) {
    Weights w;
    block = min(block, FEATURE_BLOCKS - 1u);
    uint feature = 2u * task_of(block);
#ifdef MATRICES
    load_fragments(ADDRESS(MLP_CODES) + uint64_t(block) * 8192ul, w);
#else
    [[unroll]] for (uint r = 0; r < 4u; r++) load_row(ADDRESS(((r & 1u) == 0u ? GATE : UP)) + uint64_t((feature + (r >> 1)) * CHUNKS) * 16ul, r, w);
#endif
    [[unroll]] for (uint j = 0; j < SLOTS; j++) {
        uint at = feature * GROUPS + group_of(j);
        w.affine[j] = uvec4(Weights2(ADDRESS(MLP_AFFINE)).v[at], Weights2(ADDRESS(MLP_AFFINE)).v[at + GROUPS]);
    }
    return w;
}

float gated(float gate, float up) { return gate / (1.0 + exp(-gate)) * up; }

// Four lanes hold a block, two features each.
void finish_gate_up(uint block, vec4 x) {
    float h0 = gated(x.x, x.y), h1 = gated(x.z, x.w);
    float most = max(abs(h0), abs(h1)), sum = h0 + h1;
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) {
        most = max(most, lane_xor(most, m));
        sum += lane_xor(sum, m);
    }
    most = max(most, 1e-20);
    uint k0 = floatBitsToUint(fma(h0, STEPS_16BIT / most, WHOLE)), k1 = floatBitsToUint(fma(h1, STEPS_16BIT / most, WHOLE));
    // Lane t has features 2t and 2t + 1, which are halves of two elements, and lane t ^ 2 has the others.
    uint t = lane() & 3u, element = 2u * (t & 1u) + (t >> 1);
    uvec2 pairs = ((uvec2(k0, k1) + 0x8080u) & 0xffffu) << (16u * (t >> 1));
    pairs.x |= lane_xor(pairs.x, 2u);
    pairs.y |= lane_xor(pairs.y, 2u);
    if (warp() < GATE_UP_BLOCKS && block < FEATURE_BLOCKS && sequence_of_lane() < SEQUENCES) {
        uint place = place_of(block, DOWN_WORDS, DOWN_RUN);
        Shared1(in_state(AT_BLOCKS)).v[element_at(place, element)] = (t >> 1) == 0u ? pairs.x : pairs.y;
        if (t == 0u) Shared2(in_state(AT_SCALES)).v[place] = floatBitsToUint(vec2(most * (1.0 / STEPS_16BIT), sum));
    }
}

// Of groups of eight sequences.
void gate_up(uint first_group, uint end_group) {
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * GATE_UP_BLOCKS; first < FEATURE_BLOCKS; first += gl_NumWorkGroups.x * GATE_UP_BLOCKS) {
        Weights w0 = load_gate_up(first), w1 = load_gate_up(first + 1u), w2 = load_gate_up(first + 2u);
        NormWeights n = load_norm(mlp_norm());
        POLLED(wait_for(O_PHASE));
        [[dont_unroll]] for (uint group = first_group; group < end_group; group++) {
            take_group(group);
            barrier(); // the parts before were read
            normalise(n);
            keep_part(0u, warp_sums(w0));
            keep_part(1u, warp_sums(w1));
            keep_part(2u, warp_sums(w2));
            barrier();
            uint own = min(warp(), GATE_UP_BLOCKS - 1u);
            finish_gate_up(first + own, sum_of_warps(own) * norm_scale());
        }
    }
}
