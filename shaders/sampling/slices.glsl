// The part that each workgroup leaves for the last one: the mass of its slice of logits, and those that belong on
// the list. All workgroups of a row find the same bounds. DRAWS leaves out logits of -inf.
//
//   without filters that count   the mass of all logits of the slice that pass min_p
//   with a histogram             the same of those above the bin of the stricter of both thresholds; those in it are listed
//   few                          the mass of all at temperature 1; those are listed that the top_k may be among

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Left1s { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Left2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Left64s { uint64_t v[]; };

// Bins `first` to `last` of the distance from the maximum, `steps` to 1, are listed. The targets of both thresholds
// count from `first`. `wanted` says which thresholds lie in those bins: 1 top_k, 2 top_p.
struct Bounds {
    uint first, last;
    float steps;
    uint wanted;
    uint64_t count_target, mass_target;
};

float most; // the largest logit of the row

// The logits of a slice, a thread's THREADS apart.
struct Slice {
    float x[MAX_PER_THREAD];
};

Slice load_slice(uint row, uint slice) {
    Slice s;
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++)
        s.x[n] = logit(row, min(slice * SLICE + n * THREADS + thread(), COLS - 1u));
    return s;
}

uint bin_of(float x, float steps) { return distance_bin(x, most, steps); }

Bounds no_bounds() { return Bounds(BINS, BINS, SAMPLE_STEPS, 0u, 0ul, 0ul); }

// From the histogram: a thread has the count and the mass of its bin.
Bounds histogram_bounds(uint count, uint64_t mass) {
    Bounds b = no_bounds();
    uint count_bin = BINS, mass_bin = BINS;
    uint64_t total;
    if (by_count()) {
        uint64_t upto = running_sum(uint64_t(count), total);
        b.count_target = min(uint64_t(top_k), total) - 1ul;
        count_bin = find(upto, uint64_t(count), b.count_target);
    }
    if (by_mass()) {
        uint64_t upto = running_sum(mass, total);
        b.mass_target = max(mass_fraction(total, top_p), 1ul) - 1ul;
        mass_bin = find(upto, mass, b.mass_target);
    }
    b.first = b.last = min(count_bin, mass_bin);
    b.wanted = (count_bin == b.last ? 1u : 0u) | (mass_bin == b.last ? 2u : 0u);
    return b;
}

// From the largest of each part: bins reach from the maximum to the least of them. `counts` must be cleared.
Bounds few_bounds(Parts parts, float least) {
    Bounds b;
    b.steps = 255.0 / clamp(most - least, 1e-6, 64.0);
    [[unroll]] for (uint n = 0; n < PART_ROUNDS; n++)
        if (parts.v[n].x != NO_TOKEN) atomicAdd(counts[bin_of(value_of(parts.v[n].y), b.steps)], 1u);
    barrier();
    uint64_t target = uint64_t(top_k - 1u), own = uint64_t(counts[thread()]), total;
    uint64_t upto = running_sum(own, total);
    b.first = 0u;
    b.last = find(upto, own, target);
    b.wanted = by_mass() ? 3u : 1u;
    b.count_target = uint64_t(top_k - 1u);
    b.mass_target = 0ul; // the last workgroup knows the total
    return b;
}

shared uint mass_limbs[4];
shared uint own_listed;
shared uint first_listed;
shared bool is_last;

// Prepares shared memory, and finds the largest key of the row's parts, which `most` is that of, and the least one.
uvec2 begin_slice(Parts parts) {
    if (thread() < 4u) mass_limbs[thread()] = 0u;
    if (thread() == 0u) own_listed = 0u;
    counts[thread()] = 0u;
    uint least = NO_TOKEN;
    [[unroll]] for (uint n = 0; n < PART_ROUNDS; n++)
        if (parts.v[n].x != NO_TOKEN) least = min(least, parts.v[n].y);
    uvec2 extremes = largest(uvec2(best_key(parts), ~least));
    most = value_of(extremes.x);
    barrier();
    return uvec2(extremes.x, ~extremes.y);
}

void leave_slice(uint64_t row_scratch, uint slice, Slice s, Bounds b) {
    uint least = min_p > 0.0 ? min_p_key(most, min_p) : 0u;
    float inverse = few ? 1.0 : inverse_temperature(temperature);
    uint slot[MAX_PER_THREAD];
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        uint bin = bin_of(s.x[n], b.steps);
        bool listed = bin >= b.first && bin <= b.last && slice * SLICE + n * THREADS + thread() < COLS;
        listed = listed && (!DRAWS || may_count(s.x[n]));
        slot[n] = listed ? atomicAdd(own_listed, 1u) : NO_TOKEN;
    }
    barrier();
    uint place = 0u;
    if (thread() == 0u && own_listed > 0u) place = atomicAdd(Left1s(row_scratch).v[LISTED], own_listed); // on its way meanwhile
    uvec4 sums = uvec4(0);
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        float x = s.x[n];
        bool counts_here = few || (bin_of(x, b.steps) < b.first && key_of(x) >= least);
        if (counts_here && slice * SLICE + n * THREADS + thread() < COLS) sums += limbs_of(mass_of(token_weight(x, most, inverse)));
    }
    sums = subgroupAdd(sums);
    if (subgroupElect()) [[unroll]]
        for (uint l = 0; l < 4u; l++) atomicAdd(mass_limbs[l], sums[l]);
    if (thread() == 0u) first_listed = place;
    barrier();
    uint64_t mass = mass_of_limbs(uvec4(mass_limbs[0], mass_limbs[1], mass_limbs[2], mass_limbs[3]));
    if (thread() == 0u) Left64s(row_scratch + SLICE_MASSES * 4u).v[slice] = mass;
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        if (slot[n] == NO_TOKEN) continue;
        uint i = slice * SLICE + n * THREADS + thread();
        Left2s(row_scratch + LIST * 4u).v[first_listed + slot[n]] = uvec2(i, floatBitsToUint(s.x[n]));
    }
}

// Whether all other workgroups of the row have left what they had to.
bool finish_slice(uint64_t row_scratch) {
    groupMemoryBarrier();
    barrier();
    if (thread() == 0u) {
        memoryBarrierBuffer(); // for all of them
        is_last = atomicAdd(Left1s(row_scratch).v[FINISHED], 1u) + 1u == gl_NumWorkGroups.x;
        memoryBarrierBuffer();
        if (is_last) Left1s(row_scratch).v[FINISHED] = 0u; // for the next kernel that counts
    }
    barrier();
    return is_last;
}

uint64_t list;
uint list_size;
uvec2 own_entry; // entry `thread()` of the list, which all of it fits in as a rule

// For the last workgroup: the list, and the mass of the thread's slice.
uint64_t take_slices(uint64_t row_scratch) {
    list = row_scratch + LIST * 4u;
    list_size = Left1s(row_scratch).v[LISTED];
    own_entry = Left2s(list).v[min(thread(), COLS - 1u)];
    return thread() < slices() ? Left64s(row_scratch + SLICE_MASSES * 4u).v[thread()] : 0ul;
}

// To be called after a barrier: an empty list for the next kernel.
void clear_list(uint64_t row_scratch) {
    if (thread() == 0u) Left1s(row_scratch).v[LISTED] = 0u;
}
