#version 460
// The token of each row: the first largest logit, or a draw from what sample_slices left; see sample.glsl. One workgroup a row.
//
// The token goes to `out`, or it ends a step of a loop, whose state this kernel advances: `next` is the token, `position` counts
// on, and `log` and `recent` are rings that get the token at position modulo their size. The uniform number of the draw comes
// from `uniforms` or out of `key`, which is split as mx.random.split does: the first half stays, the second is for this draw.

#define BUFFERS 10
#include "sample.glsl"
#include "threefry.h"

const uint UNIFORMS = 3u, KEY = 4u, OUT = 5u, NEXT = 6u, POSITION = 7u, LOG = 8u, RECENT = 9u;

// What passes the filters: keys above `key`, and those equal to it at indices up to `last_tie`.
struct Kept { uint key, last_tie; };

bool keeps(Kept kept, float x, uint i) {
    uint key = key_of(x);
    return key > kept.key || (key == kept.key && i <= kept.last_tie);
}

float most;
uint64_t list;
uint list_size;
uvec2 own_entry; // entry `thread()` of the list, which all of it fits in as a rule

shared uint near_keys[SAMPLE_BINS];
shared uint near_indices[SAMPLE_BINS];
shared uint64_t near_masses[SAMPLE_BINS];
shared uint near_count;
shared uvec2 selected;

// Entry n of the list as what orders it, likelier first: 256 steps of the distance from the maximum within the bin, then the key
// upside down, then the index.
uvec3 entry(uint n, out float x) {
    uvec2 e = n == thread() ? own_entry : U32x2s(list).v[n];
    x = uintBitsToFloat(e.y);
    float distance = (most - x) * 8.0;
    return uvec3(distance < float(BINS - 1u) ? uint((distance - floor(distance)) * 256.0) : 0u, ~key_of(x), e.x);
}

// The entry of the list at which the running count (then ties go by index), or the running mass, passes `target`: (key, index).
// While more candidates than threads are left, a histogram of one more byte of their order narrows them down; then every
// thread compares one with all others.
uvec2 select_entry(bool of_counts, uint64_t target) {
    uvec3 prefix = uvec3(0), mask = uvec3(0);
    uint left = list_size;
    float x;
    for (int digit = 7; left > THREADS && digit >= (of_counts ? 0 : 3); digit--) { // 7: distance, 6 to 3: key, 2 to 0: index
        uint part = digit == 7 ? 0u : digit >= 3 ? 1u : 2u;
        uint shift = 8u * uint(digit == 7 ? 0 : digit >= 3 ? digit - 3 : digit);
        uint first = 0u, last = NONE; // ~key, upside down, of the candidates
        clear_bins();
        for (uint n = thread(); n < list_size; n += THREADS) {
            uvec3 e = entry(n, x);
            if ((e & mask) != prefix) continue;
            uint bin = (e[part] >> shift) & 0xffu;
            atomicAdd(counts[bin], 1u);
            if (!of_counts) add_mass(bin, mass_of(token_weight(x, most, 1.0)));
            first = max(first, ~e.y);
            last = min(last, ~e.y);
        }
        first = largest(first);
        if (!of_counts && first == ~largest(~last)) return uvec2(first, NONE); // nothing but ties, which masses keep together
        barrier();
        uint64_t own = of_counts ? uint64_t(counts[thread()]) : bin_mass(thread()), total;
        uint64_t upto = running_sum(own, total);
        uint bin = find(upto, own, target);
        left = counts[bin];
        prefix[part] |= bin << shift;
        mask[part] |= 0xffu << shift;
    }
    if (left > THREADS) return uvec2(~prefix.y, NONE);

    barrier();
    if (thread() == 0u) near_count = 0u;
    barrier();
    for (uint n = thread(); n < list_size; n += THREADS) {
        uvec3 e = entry(n, x);
        if ((e & mask) != prefix) continue;
        uint at = atomicAdd(near_count, 1u);
        near_keys[at] = ~e.y;
        near_indices[at] = e.z;
        near_masses[at] = of_counts ? 1ul : mass_of(token_weight(x, most, 1.0));
    }
    barrier();
    if (thread() < left) {
        uint key = near_keys[thread()], index = near_indices[thread()];
        uint64_t above = 0ul, equal = 0ul;
        for (uint n = 0u; n < left; n++) {
            bool ties = near_keys[n] == key;
            bool first = near_keys[n] > key || (of_counts && ties && near_indices[n] < index);
            if (first) above += near_masses[n];
            else if (ties && (!of_counts || n == thread())) equal += near_masses[n];
        }
        if (above <= target && target < above + equal) selected = uvec2(key, index);
    }
    barrier();
    return selected;
}

// What top_k, top_p and min_p keep.
Kept find_kept(uint wanted, uint64_t count_target, uint64_t mass_target) {
    Kept kept = Kept(pc.p.min_p > 0.0 ? min_p_key(most, pc.p.min_p) : 0u, NONE);
    if ((wanted & 2u) != 0u) kept.key = max(kept.key, select_entry(false, mass_target).x);
    if ((wanted & 1u) != 0u) {
        uvec2 last = select_entry(true, count_target);
        if (last.x >= kept.key) kept = Kept(last.x, last.y);
    }
    return kept;
}

// The first index whose cumulative mass exceeds the fraction `uniform01` of what is kept.
uint draw(uint row, uint64_t slice_mass, Kept kept, float uniform01) {
    float inverse = inverse_temperature(pc.p.temperature);
    clear_bins();
    float x;
    for (uint n = thread(); n < list_size; n += THREADS) {
        uint i = entry(n, x).z;
        if (keeps(kept, x, i)) add_mass(i / SLICE, mass_of(token_weight(x, most, inverse)));
    }
    barrier();
    uint64_t own = bin_mass(thread()) + slice_mass, total;
    uint64_t upto = running_sum(own, total);
    uint64_t target = mass_fraction(total, uniform01);
    uint slice = find(upto, own, target);

    uint64_t masses[PER_THREAD];
    own = 0ul;
    uint first = slice * SLICE + thread() * PER_THREAD;
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        x = logit(row, min(first + n, pc.p.cols - 1u));
        bool kept_here = first + n < pc.p.cols && keeps(kept, x, first + n);
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

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows) return;
    uint position = pc.address[POSITION] != 0ul ? U32s(pc.address[POSITION]).v[row] : 0u;
    uvec2 key = pc.address[KEY] != 0ul ? U32x2s(pc.address[KEY]).v[row] : uvec2(0);
    // What sample_slices left is asked for before anything is waited for.
    uint64_t row_scratch = scratch(row), slice_mass = 0ul, count_target = 0ul, mass_target = 0ul;
    uint wanted = 0u;
    list = row_scratch + LIST * 4u;
    list_size = 0u;
    if (pc.p.temperature > 0.0) {
        if (thread() < slices()) slice_mass = U64s(row_scratch + SLICES * 4u).v[thread()];
        if (by_count() || by_mass()) {
            list_size = U32s(row_scratch).v[LISTED];
            wanted = U32s(row_scratch).v[WANTED];
            count_target = U64s(row_scratch + TARGETS * 4u).v[0];
            mass_target = U64s(row_scratch + TARGETS * 4u).v[1];
            own_entry = U32x2s(list).v[min(thread(), pc.p.cols - 1u)];
        }
    }
    uvec2 best = best_of(best_of_parts(row));
    uint token = best.x;
    most = value_of(best.y);
    float uniform01 = pc.address[UNIFORMS] != 0ul ? F32s(pc.address[UNIFORMS]).v[row] : 0.0;
    if (pc.address[KEY] != 0ul) {
        uvec2 a = unpack32(threefry(key.x, key.y, 0u, 2u)), b = unpack32(threefry(key.x, key.y, 1u, 3u));
        key = uvec2(a.x, b.x);
        uint word = uint(threefry(a.y, b.y, 0u, 0u));
        uniform01 = min(float(word) * (1.0 / 4294967296.0), 1.0 - 1.0 / 16777216.0);
    }
    if (pc.p.temperature > 0.0 && is_finite(most)) {
        token = draw(row, slice_mass, find_kept(wanted, count_target, mass_target), uniform01);
    }
    if (thread() > 0u) return;
    if (pc.address[KEY] != 0ul) U32x2s(pc.address[KEY]).v[row] = key;
    if (pc.address[OUT] != 0ul) U32s(pc.address[OUT]).v[row] = token;
    if (pc.address[NEXT] != 0ul) U32s(pc.address[NEXT]).v[row] = token;
    if (pc.address[POSITION] == 0ul) return;
    position++;
    U32s(pc.address[POSITION]).v[row] = position;
    if (pc.address[LOG] != 0ul) U32s(pc.address[LOG]).v[row * pc.p.log_size + position % pc.p.log_size] = token;
    if (pc.address[RECENT] != 0ul) U32s(pc.address[RECENT]).v[row * pc.p.recent_size + position % pc.p.recent_size] = token;
}
