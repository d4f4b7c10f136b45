// The token of a row, from what all of its slices left: the thresholds among the list, then the slice, then the token.
// If the list holds all that is kept, and has an entry for each thread at most, it alone gives the token.

// Logits that pass the filters: keys above `key`, and those equal to it at indices up to `last_tie`.
struct Kept {
    uint key, last_tie;
};

bool keeps(Kept kept, float x, uint i) {
    uint key = key_of(x);
    return key > kept.key || (key == kept.key && i <= kept.last_tie);
}

// (key, index, mass), and zeros after the last one, so that several loads are in flight at once.
shared uvec4 near_entries[SAMPLE_BINS];
const uint AT_ONCE = 8u;
shared uint near_count;
shared uvec2 selected;

// Entry n of the list as what orders it, more probable first. Its words are 256 steps of the distance from the maximum
// within the bins of the list, then the key upside down, then the index.
uvec3 entry(uint n, Bounds b, out float x) {
    uvec2 e = n == thread() ? own_entry : Left2s(list).v[n];
    x = uintBitsToFloat(e.y);
    float distance = (most - x) * b.steps - float(b.first);
    float step = distance * (256.0 / float(b.last + 1u - b.first));
    return uvec3(step < 255.0 ? uint(max(step, 0.0)) : 255u, ~key_of(x), e.x);
}

// The entry of the list at which the running count (then ties go by index), or the running mass, passes `target`: (key,
// index). While more candidates than threads are left, a histogram of one more byte of their order narrows them down.
// Then every thread compares one with all others.
uvec2 select_entry(bool of_counts, uint64_t target, Bounds b) {
    uvec3 prefix = uvec3(0), mask = uvec3(0);
    uint left = list_size;
    float x;
    for (int digit = 7; left > THREADS && digit >= (of_counts ? 0 : 3); digit--) { // 7: distance, 6 to 3: key, 2 to 0: index
        uint part = digit == 7 ? 0u : digit >= 3 ? 1u : 2u;
        uint shift = 8u * uint(digit == 7 ? 0 : digit >= 3 ? digit - 3 : digit);
        uint first = 0u, last = NO_TOKEN; // ~key, upside down, of the candidates
        clear_bins();
        for (uint n = thread(); n < list_size; n += THREADS) {
            uvec3 e = entry(n, b, x);
            if ((e & mask) != prefix) continue;
            uint bin = (e[part] >> shift) & 0xffu;
            atomicAdd(counts[bin], 1u);
            if (!of_counts) add_mass(bin, mass_of(token_weight(x, most, 1.0)));
            first = max(first, ~e.y);
            last = min(last, ~e.y);
        }
        first = largest(first);
        if (!of_counts && first == ~largest(~last)) return uvec2(first, NO_TOKEN); // nothing but ties, which masses keep together
        barrier();
        uint64_t own = of_counts ? uint64_t(counts[thread()]) : bin_mass(thread()), total;
        uint64_t upto = running_sum(own, total);
        uint bin = find(upto, own, target);
        left = counts[bin];
        prefix[part] |= bin << shift;
        mask[part] |= 0xffu << shift;
    }
    if (left > THREADS) return uvec2(~prefix.y, NO_TOKEN);

    barrier();
    if (thread() == 0u) near_count = 0u;
    near_entries[thread()] = uvec4(0);
    barrier();
    for (uint n = thread(); n < list_size; n += THREADS) {
        uvec3 e = entry(n, b, x);
        if ((e & mask) != prefix) continue;
        uint at = atomicAdd(near_count, 1u);
        near_entries[at] = uvec4(~e.y, e.z, unpack32(of_counts ? 1ul : mass_of(token_weight(x, most, 1.0))));
    }
    barrier();
    if (thread() < left) {
        uvec4 own = near_entries[thread()];
        uint64_t above = 0ul, equal = 0ul;
        for (uint first = 0u; first < left; first += AT_ONCE) {
            [[unroll]] for (uint n = 0u; n < AT_ONCE; n++) {
                uvec4 e = near_entries[first + n];
                if (e.x > own.x || (of_counts && e.x == own.x && e.y < own.y)) above += pack64(e.zw);
                else if (of_counts ? e.xy == own.xy : e.x == own.x) equal += pack64(e.zw);
            }
        }
        if (above <= target && target < above + equal) selected = own.xy;
    }
    barrier();
    return selected;
}

// The logits that top_k, top_p and min_p keep.
Kept find_kept(Bounds b) {
    Kept kept = Kept(min_p > 0.0 ? min_p_key(most, min_p) : 0u, NO_TOKEN);
    if ((b.wanted & 2u) != 0u) kept.key = max(kept.key, select_entry(false, b.mass_target, b).x);
    if ((b.wanted & 1u) != 0u) {
        uvec2 last = select_entry(true, b.count_target, b);
        if (last.x >= kept.key) kept = Kept(last.x, last.y);
    }
    return kept;
}

// The first index whose cumulative mass exceeds the fraction `uniform01` of the kept mass.
uint draw_from_slices(uint row, uint64_t slice_mass, Bounds b, float uniform01) {
    Kept kept = find_kept(b);
    float inverse = inverse_temperature(temperature);
    clear_bins();
    float x;
    for (uint n = thread(); n < list_size; n += THREADS) {
        uint i = entry(n, b, x).z;
        if (keeps(kept, x, i)) add_mass(i / SLICE, mass_of(token_weight(x, most, inverse)));
    }
    barrier();
    uint64_t own = bin_mass(thread()) + slice_mass, total;
    uint64_t upto = running_sum(own, total);
    uint64_t target = mass_fraction(total, uniform01);
    uint slice = find(upto, own, target);

    uint64_t masses[MAX_PER_THREAD];
    own = 0ul;
    uint first = slice * SLICE + thread() * PER_THREAD;
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        x = logit(row, min(first + n, COLS - 1u));
        bool kept_here = first + n < COLS && keeps(kept, x, first + n);
        masses[n] = kept_here ? mass_of(token_weight(x, most, inverse)) : 0ul;
        own += masses[n];
    }
    upto = running_sum(own, total);
    uint winner = find(upto, own, target);
    barrier();
    if (thread() == winner) {
        uint n = 0u;
        for (; n < PER_THREAD - 1u && target >= masses[n]; n++) target -= masses[n];
        found = first + n;
    }
    barrier();
    return found;
}

// `ahead` is how many entries of a list come before the thread's: more probable ones, then ties at lower indices.
// `above` is the mass of the more probable ones. The list has an entry for each thread at most.
struct Rank {
    uint ahead;
    uint64_t above;
};

Rank rank_in_list(uint key, uint index) {
    uint64_t mass = mass_of(token_weight(uintBitsToFloat(own_entry.y), most, 1.0));
    near_entries[thread()] = thread() < list_size ? uvec4(key, index, unpack32(mass)) : uvec4(0);
    barrier();
    Rank r = Rank(0u, 0ul);
    if (thread() < list_size) {
        for (uint first = 0u; first < list_size; first += AT_ONCE) {
            [[unroll]] for (uint n = 0u; n < AT_ONCE; n++) {
                uvec4 e = near_entries[first + n];
                if (e.x > key || (e.x == key && e.y < index)) r.ahead++;
                if (e.x > key) r.above += pack64(e.zw);
            }
        }
    }
    barrier();
    return r;
}

// The draw from a list that holds all that is kept: every thread compares its entry with all others.
uint draw_from_list(Bounds b, float uniform01) {
    uint index = own_entry.x;
    float x = uintBitsToFloat(own_entry.y);
    uint key = key_of(x);
    Rank r = rank_in_list(key, index);
    bool kept = thread() < list_size && r.ahead < top_k && (!by_mass() || r.above <= b.mass_target);
    if (min_p > 0.0) kept = kept && key >= min_p_key(most, min_p);
    uint64_t own = kept ? mass_of(token_weight(x, most, inverse_temperature(temperature))) : 0ul;
    near_entries[thread()].zw = unpack32(own);
    barrier();
    if (kept) {
        uint64_t upto = 0ul, total = 0ul;
        for (uint first = 0u; first < list_size; first += AT_ONCE) {
            [[unroll]] for (uint n = 0u; n < AT_ONCE; n++) {
                uvec4 e = near_entries[first + n];
                total += pack64(e.zw);
                if (e.y < index) upto += pack64(e.zw);
            }
        }
        uint64_t target = mass_fraction(total, uniform01);
        if (upto <= target && target < upto + own) found = index;
    }
    barrier();
    return found;
}
