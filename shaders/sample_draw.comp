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

shared uint near_keys[SAMPLE_BINS];
shared uint near_indices[SAMPLE_BINS];
shared uint64_t near_masses[SAMPLE_BINS];
shared uint near_count;
shared uvec2 selected;

// Entry n of the list as what orders it, likelier first: the key upside down, then the index.
uvec2 entry(uint n, out float x) {
    uvec2 e = U32x2s(list).v[n];
    x = uintBitsToFloat(e.y);
    return uvec2(~key_of(x), e.x);
}

// The entry of the list at which the running count (then ties go by index), or the running mass, passes `target`: (key, index).
// While more candidates than threads are left, a histogram of one more byte of their order narrows them down; then every
// thread compares one with all others.
uvec2 select_entry(bool of_counts, uint64_t target) {
    uvec2 prefix = uvec2(0), mask = uvec2(0);
    uint left = list_size;
    float x;
    for (int digit = 6; left > THREADS && digit >= (of_counts ? 0 : 3); digit--) {
        bool of_key = digit >= 3;
        uint shift = 8u * uint(of_key ? digit - 3 : digit);
        clear_bins();
        for (uint n = thread(); n < list_size; n += THREADS) {
            uvec2 e = entry(n, x);
            if ((e & mask) != prefix) continue;
            uint bin = ((of_key ? e.x : e.y) >> shift) & 0xffu;
            atomicAdd(counts[bin], 1u);
            if (!of_counts) add_mass(bin, mass_of(token_weight(x, most, 1.0)));
        }
        barrier();
        uint64_t own = of_counts ? uint64_t(counts[thread()]) : bin_mass(thread()), total;
        uint64_t upto = running_sum(own, total);
        uint bin = find(upto, own, target);
        left = counts[bin];
        prefix |= (of_key ? uvec2(1, 0) : uvec2(0, 1)) * (bin << shift);
        mask |= (of_key ? uvec2(1, 0) : uvec2(0, 1)) * (0xffu << shift);
    }
    if (left > THREADS) return uvec2(~prefix.x, NONE); // equals all of them: masses have no order among ties

    barrier();
    if (thread() == 0u) near_count = 0u;
    barrier();
    for (uint n = thread(); n < list_size; n += THREADS) {
        uvec2 e = entry(n, x);
        if ((e & mask) != prefix) continue;
        uint at = atomicAdd(near_count, 1u);
        near_keys[at] = ~e.x;
        near_indices[at] = e.y;
        near_masses[at] = of_counts ? 1ul : mass_of(token_weight(x, most, 1.0));
    }
    barrier();
    if (thread() < left) {
        uint key = near_keys[thread()], index = near_indices[thread()];
        uint64_t above = 0ul, equal = 0ul;
        for (uint n = 0u; n < left; n++) {
            bool ties = near_keys[n] == key && (!of_counts || n == thread());
            if (near_keys[n] > key || (of_counts && near_keys[n] == key && near_indices[n] < index)) above += near_masses[n];
            else if (ties) equal += near_masses[n];
        }
        if (above <= target && target < above + equal) selected = uvec2(key, index);
    }
    barrier();
    return selected;
}

// What top_k, top_p and min_p keep.
Kept find_kept(uint64_t row_scratch) {
    Kept kept = Kept(pc.p.min_p > 0.0 ? min_p_key(most, pc.p.min_p) : 0u, NONE);
    list_size = 0u;
    if (!by_count() && !by_mass()) return kept;
    list_size = U32s(row_scratch).v[LISTED];
    uint wanted = U32s(row_scratch).v[WANTED];
    U64s targets = U64s(row_scratch + TARGETS * 4u);
    uvec2 by_count_entry = uvec2(0u, NONE);
    if ((wanted & 1u) != 0u) by_count_entry = select_entry(true, targets.v[0]);
    if ((wanted & 2u) != 0u) kept.key = max(kept.key, select_entry(false, targets.v[1]).x);
    if ((wanted & 1u) != 0u && by_count_entry.x >= kept.key) kept = Kept(by_count_entry.x, by_count_entry.y);
    return kept;
}

// The first index whose cumulative mass exceeds the fraction `uniform01` of what is kept.
uint draw(uint row, uint64_t row_scratch, Kept kept, float uniform01) {
    float inverse = inverse_temperature(pc.p.temperature);
    clear_bins();
    float x;
    for (uint n = thread(); n < list_size; n += THREADS) {
        uvec2 e = entry(n, x);
        if (keeps(kept, x, e.y)) add_mass(e.y / SLICE, mass_of(token_weight(x, most, inverse)));
    }
    barrier();
    uint64_t own = bin_mass(thread()), total;
    if (thread() < slices()) own += U64s(row_scratch + SLICES * 4u).v[thread()];
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
    uvec2 best = best_of_row(row);
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
        uint64_t row_scratch = scratch(row);
        list = row_scratch + LIST * 4u;
        token = draw(row, row_scratch, find_kept(row_scratch), uniform01);
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
