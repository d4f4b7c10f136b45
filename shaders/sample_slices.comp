#version 460
// Of each slice of logits: the mass of what passes the filters for sure, and a list of what lies in the one bin of the histogram
// that holds the stricter threshold of top_k and top_p; see sample.glsl. One workgroup a slice; all of them find the same bin.

#define BUFFERS 3
#include "sample.glsl"

shared uint mass_limbs[3];
shared uint own_listed;
shared uint first_listed;

// The bin of the list. The first slice leaves what sample_draw needs to know about it.
uint find_last_bin(uint64_t row_scratch, uint count, uint64_t mass, bool leaves) {
    U32s words = U32s(row_scratch);
    uint count_bin = BINS, mass_bin = BINS;
    uint64_t count_target = 0ul, mass_target = 0ul, total;
    if (by_count()) {
        count_target = uint64_t(pc.p.top_k - 1u);
        uint64_t upto = running_sum(uint64_t(count), total);
        count_bin = find(upto, uint64_t(count), count_target);
    }
    if (by_mass()) {
        uint64_t upto = running_sum(mass, total);
        mass_target = max(mass_fraction(total, pc.p.top_p), 1ul) - 1ul;
        mass_bin = find(upto, mass, mass_target);
    }
    uint last = min(count_bin, mass_bin);
    if (leaves && thread() == 0u) {
        words.v[LAST_BIN] = last;
        words.v[WANTED] = (count_bin == last ? 1u : 0u) | (mass_bin == last ? 2u : 0u);
        U64s(row_scratch + TARGETS * 4u).v[0] = count_target;
        U64s(row_scratch + TARGETS * 4u).v[1] = mass_target;
    }
    return last;
}

void main() {
    uint row = flat_workgroup() / slices(), slice = flat_workgroup() % slices();
    if (row >= pc.p.rows) return;
    uint64_t row_scratch = scratch(row);
    float x[PER_THREAD];
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        uint i = slice * SLICE + n * THREADS + thread();
        x[n] = logit(row, min(i, pc.p.cols - 1u));
    }
    U32s words = U32s(row_scratch);
    uint count = words.v[COUNTS + thread()];
    uint64_t mass = mass_of_limbs(uvec3(words.v[LIMBS + thread()], words.v[LIMBS + BINS + thread()], words.v[LIMBS + 2u * BINS + thread()]));
    if (thread() < 3u) mass_limbs[thread()] = 0u;
    if (thread() == 0u) own_listed = 0u;
    float most = value_of(largest(best_of_parts(row).y));
    if (!is_finite(most)) return;
    uint last = by_count() || by_mass() ? find_last_bin(row_scratch, count, mass, slice == 0u) : BINS;
    uint least = pc.p.min_p > 0.0 ? min_p_key(most, pc.p.min_p) : 0u;
    float inverse = inverse_temperature(pc.p.temperature);

    barrier();
    uvec3 sums = uvec3(0);
    uint slot[PER_THREAD];
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        slot[n] = NONE;
        if (slice * SLICE + n * THREADS + thread() >= pc.p.cols) continue;
        uint bin = distance_bin(x[n], most);
        if (bin == last) slot[n] = atomicAdd(own_listed, 1u);
        else if (bin < last && key_of(x[n]) >= least) sums += limbs_of(mass_of(token_weight(x[n], most, inverse)));
    }
    [[unroll]] for (uint l = 0; l < 3u; l++) {
        uint sum = subgroupAdd(sums[l]);
        if (subgroupElect()) atomicAdd(mass_limbs[l], sum);
    }
    barrier();
    if (thread() == 0u) {
        U64s(row_scratch + SLICES * 4u).v[slice] = mass_of_limbs(uvec3(mass_limbs[0], mass_limbs[1], mass_limbs[2]));
        if (own_listed > 0u) first_listed = atomicAdd(U32s(row_scratch).v[LISTED], own_listed);
    }
    barrier();
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        if (slot[n] == NONE) continue;
        uint i = slice * SLICE + n * THREADS + thread();
        U32x2s(row_scratch + LIST * 4u).v[first_listed + slot[n]] = uvec2(i, floatBitsToUint(x[n]));
    }
}
