// Products with the normalised residual, y = x / rms(x) * w in float16: columns of q, k and v with their biases; gate and up, as
// h = activation(g) * u / 16 within the range of float16. A unit is two blocks of 16 columns, gate and up interleaved.

const uint HIDDEN_STEPS = HIDDEN / 64u, HIDDEN_SLOTS = (HIDDEN_STEPS + WARPS - 1u) / WARPS;

// A wide residual leaves few registers for what else is under way: then there is one block of 8 rows at most, norm weights wait in shared
// memory, and units are multiplied in parts.
const bool WIDE = HIDDEN_SLOTS > 2u;
const uint PART_SLOTS = WIDE ? 2u : HIDDEN_SLOTS, PARTS = (HIDDEN_SLOTS + PART_SLOTS - 1u) / PART_SLOTS;

shared vec4 squares[16u * (WARPS / 4u + 1u)];           // of each row and warp; one more, so that rows lie in different banks
const uint NORM_WORDS = DTYPE_W == DTYPE_F32 ? 2u : 1u; // of two weights
shared uint wide_norm[WIDE ? HIDDEN / 2u * NORM_WORDS : 1u];
uvec2 normed[HIDDEN_SLOTS * ROW_BLOCKS * 4u];

struct NormWords {
    uvec2 w[WIDE ? 1u : HIDDEN_SLOTS * 8u];
};

// Where the pair of weights is that belongs to half of a lane's columns in a block of a slot.
uint norm_pair(uint slot, uint block, uint half_) {
    return min(warp() + slot * WARPS, HIDDEN_STEPS - 1u) * 32u + block * 8u + lane_column() + half_ * 4u;
}
uvec2 load_norm_pair(uint64_t norm, uint pair) { return DTYPE_W == DTYPE_F32 ? Weights2(norm).v[pair] : uvec2(Weights1(norm).v[pair], 0u); }

// To be followed by a barrier.
void load_norm(uint64_t norm, inout NormWords n) {
    if (WIDE) {
        // All threads take as many turns: llvmpipe loses the subgroups that pass a loop over in front of a barrier.
        for (uint first = 0; first < HIDDEN / 2u * NORM_WORDS; first += THREADS)
            if (first + thread() < HIDDEN / 2u * NORM_WORDS) wide_norm[first + thread()] = Weights1(norm).v[first + thread()];
    } else {
        [[unroll]] for (uint i = 0; i < HIDDEN_SLOTS * 8u; i++)
            n.w[WIDE ? 0u : i] = load_norm_pair(norm, norm_pair(i / 8u, i / 2u % 4u, i % 2u));
    }
}
vec2 norm_value(uvec2 w) { return DTYPE_W == DTYPE_F32 ? uintBitsToFloat(w) : pair_value(w.x, DTYPE_W); }
vec2 norm_weights(inout NormWords n, uint slot, uint block, uint half_) {
    if (!WIDE) return norm_value(n.w[WIDE ? 0u : slot * 8u + block * 2u + half_]);
    uint at = norm_pair(slot, block, half_) * NORM_WORDS;
    return norm_value(uvec2(wide_norm[at], wide_norm[at + NORM_WORDS - 1u]));
}

// Waits for the residual with this tag; to be called by all.
void normalise(inout NormWords n, uint tag) {
    uvec4 x[HIDDEN_SLOTS * ROW_BLOCKS * 4u];
    wait_for_tag(x_at(0u, min(warp() * 4u + lane_column(), HIDDEN / 16u - 1u), 0u), tag, TWO_BITS);
    uint spins = 0u;
    bool whole;
    do {
        whole = true;
        [[unroll]] for (uint i = 0; i < HIDDEN_SLOTS * ROW_BLOCKS * 4u; i++) {
            uint step = warp() + i / 4u / ROW_BLOCKS * WARPS, rows = i / 4u % ROW_BLOCKS;
            x[i] = uvec4(tag); // next to 0
            if (has_row(rows) && step < HIDDEN_STEPS) x[i] = Shared4(in_state(x_at(rows, step * 4u + i % 4u, lane()))).v[0];
        }
        [[unroll]] for (uint i = 0; i < HIDDEN_SLOTS * ROW_BLOCKS * 4u; i++)
            whole = whole && is_fresh(x[i], tag, TWO_BITS);
    } while (keep_spinning(whole, spins));
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
        float square = 0.0;
        [[unroll]] for (uint slot = 0; slot < HIDDEN_SLOTS; slot++) {
            [[unroll]] for (uint m = 0; m < 4u; m++) {
                vec4 v = uintBitsToFloat(x[(slot * ROW_BLOCKS + rows) * 4u + m]);
                square += dot(v, v);
            }
        }
        square = four_sum(square);
        if (lane_column() == 0u) squares[(rows * 8u + lane_row()) * (WARPS / 4u + 1u) + warp() / 4u][warp() & 3u] = square;
    }
    barrier();
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
        vec4 s = vec4(0);
        [[unroll]] for (uint i = 0; i < WARPS / 4u; i++)
            s += squares[(rows * 8u + lane_row()) * (WARPS / 4u + 1u) + i];
        float scale = inversesqrt((s.x + s.y + (s.z + s.w)) * (1.0 / float(HIDDEN)) + pc.p.eps);
        [[unroll]] for (uint i = 0; i < HIDDEN_SLOTS * 4u; i++) {
            uint slot = i / 4u, m = i % 4u, at = (slot * ROW_BLOCKS + rows) * 4u + m;
            vec4 weight = vec4(norm_weights(n, slot, m, 0u), norm_weights(n, slot, m, 1u));
            normed[at] = half_four(uintBitsToFloat(x[at]) * scale * weight);
        }
    }
}

// A part of a unit: steps of both of its blocks.
struct Part {
    Step w[2u * PART_SLOTS];
};

void load_part(uint64_t codes, uint64_t scales_biases, uint unit, uint part, inout Part p) {
    [[unroll]] for (uint i = 0; i < 2u * PART_SLOTS; i++)
        p.w[i] = load_step(codes, scales_biases, HIDDEN_STEPS, 2u * unit + i % 2u, warp() + (part * PART_SLOTS + i / 2u) * WARPS);
}

// The part that is two behind one of a unit, where this workgroup has so many.
void load_second_next(uint64_t codes, uint64_t scales_biases, uint unit, uint part, uint units, inout Part p) {
    uint at = unit + (part + 2u) / PARTS * gl_NumWorkGroups.x;
    if (at < units) load_part(codes, scales_biases, at, (part + 2u) % PARTS, p);
}

void multiply_part(inout Part p, uint part, inout SUM sums[2]) {
    [[unroll]] for (uint i = 0; i < PART_SLOTS * 8u; i++) {
        uint slot = part * PART_SLOTS + i / 8u, m = i / 2u % 4u, block = i % 2u;
        if (slot >= HIDDEN_SLOTS) continue;
        uint at = slot * ROW_BLOCKS * 4u + m;
        // A step behind the end is multiplied by zeros.
        uvec4 a = warp() + slot * WARPS < HIDDEN_STEPS ? rows_of(normed[at], normed[ROW_BLOCKS == 2u ? at + 4u : at]) : uvec4(0);
        sums[block] = multiply(a, weights(p.w[i / 8u * 2u + block], m), sums[block]);
    }
}

// The first of the two columns whose sums this thread finishes.
uint qkv_column(uint unit) { return (2u * unit + (thread() >> 6)) * 16u + column_of_pair(thread() & 63u); }

// Their biases, which are asked for before the sums are there.
uvec2 load_bias(uint unit) {
    if (QKV_BIAS == 0u) return uvec2(0);
    uint pair = min(qkv_column(unit), QKV_COLUMNS - 2u) / 2u;
    return DTYPE_W == DTYPE_F32 ? Weights2(qkv_bias()).v[pair] : uvec2(Weights1(qkv_bias()).v[pair], 0u);
}

void finish_qkv(uint unit, uint rows, uvec2 bias) {
    uint at = thread() & 63u, place = thread() >> 6, row = row_of_pair(rows, at), column = qkv_column(unit);
    if (place > 1u || row >= SEQUENCES || column >= QKV_COLUMNS) return;
    vec2 sums = sum_of_warps(place, at);
    if (QKV_BIAS != 0u) sums += norm_value(bias);
    uvec2 words = floatBitsToUint(sums);
    Shared2(in_state(AT_FRESH + (row * QKV_COLUMNS + column) * 4u)).v[0] =
        uvec2(tagged(words.x, tag_of_layer(), ONE_BIT), tagged(words.y, tag_of_layer(), ONE_BIT));
}

void finish_gate_up(uint unit, uint rows) {
    uint at = thread();
    if (at > 63u || row_of_pair(rows, at) >= SEQUENCES) return;
    vec2 gate = sum_of_warps(0u, at), up = sum_of_warps(1u, at);
    vec2 h = within_half(vec2(activation(gate.x, ACTIVATION), activation(gate.y, ACTIVATION)) * up * (1.0 / GATE_SCALE));
    Shared1(in_state(AT_GATED + word_at(INTERMEDIATE, rows, unit, at >> 1, at & 1u))).v[0] = tagged(half_pair(h), tag_of_layer(), ONE_BIT);
}

// All units of this workgroup from its first one on.
void normed_product(uint64_t norm, uint64_t codes, uint64_t scales_biases, uint first, uint units, bool gated) {
    if (first >= units) return;
    Part p, next;
    load_part(codes, scales_biases, first, 0u, p);
    if (!WIDE && first + gl_NumWorkGroups.x < units) load_part(codes, scales_biases, first + gl_NumWorkGroups.x, 0u, next);
    NormWords n;
    load_norm(norm, n);
    normalise(n, mark_of_residual(gated ? 1u : 0u));
    if (WIDE) load_part(codes, scales_biases, first, 1u, next);
    [[dont_unroll]] for (uint unit = first; unit < units; unit += gl_NumWorkGroups.x) {
        SUM sums[2];
        sums[0] = no_sum();
        sums[1] = no_sum();
        uvec2 bias = uvec2(0);
        if (!gated) bias = load_bias(unit);
        [[unroll]] for (uint part = 0; part < PARTS; part++) {
            multiply_part(p, part, sums);
            [[unroll]] for (uint i = 0; i < 2u * PART_SLOTS; i++)
                p.w[i] = next.w[i];
            load_second_next(codes, scales_biases, unit, part, units, next);
        }
        [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
            share(0u, rows, sums[0]);
            share(1u, rows, sums[1]);
            barrier();
            if (gated) finish_gate_up(unit, rows);
            else finish_qkv(unit, rows, bias);
            barrier(); // the sums were read
        }
    }
}
