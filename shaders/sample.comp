#version 460
// out[row] = a token drawn from softmax(logits[row] / temperature) after the filters of MLX-LM's sampler. Each filter
// is on when its parameter is: it judges the whole row's probabilities p = softmax(logits), and a token must pass all
// of them:
//
//   top_p  in (0, 1):  the tokens strictly likelier than it have a mass < top_p (tokens of equal logits stay together)
//   min_p  > 0:        logit >= max + ln(min_p)
//   top_k  > 0:        it is among the top_k largest logits; of equal logits the lower index goes first
//
// The draw is the inverse CDF in index order: the first token whose cumulative mass exceeds uniform * total.
// Temperature 0, or a maximum that is infinite or NaN, takes the first largest logit instead (NaN counts as the
// largest).
//
// One workgroup a row, nothing is sorted: each threshold is found by radix select, a histogram a pass, first over
// linear distances from the maximum (256 bins of 1/8, which spreads logits well), then over the bits of the ordered
// key within one bin. The draw is the same select over the bits of the index. Masses are integers (sample.h): no order
// matters. After the first histogram what can still pass is listed in shared memory, where it fits, and the passes after
// it walk the list. Needs THREADS >= 64 and cols <= 262,144.

#define BUFFERS 3
#define PUSH SamplePush
#include "common.glsl"
#include "sample.h"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;

const uint BINS = SAMPLE_BINS;
const uint GROUP = 16;
const uint NONE = 0xffffffffu;
const uint LISTED = 2048;

// Histograms: of counts, and of masses in three limbs. Then each bin's and each group of bins' sum.
shared uint counts[BINS];
shared uint limbs[3][BINS];
shared uint64_t masses[BINS];
shared uint count_groups[GROUP];
shared uint64_t mass_groups[GROUP];
shared uint listed[LISTED];
shared uint list_count;
shared uint best_key;
shared uint best_index;

uint row_base;
float most;

bool from_list = false; // the passes walk the list instead of the row

uint walk_start(uint first) { return (from_list ? 0u : first) + gl_LocalInvocationID.x; }
uint walk_end(uint end) { return from_list ? list_count : end; }
uint walked(uint n) { return from_list ? listed[n] : n; }

float logit(uint i) { return load_float(pc.address[0], row_base + i, DTYPE_IN); }

// Lists what lies in the bins up to `last`.
void make_list(uint last) {
    if (gl_LocalInvocationID.x == 0u) list_count = 0u;
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        if (distance_bin(logit(i), most) > last) continue;
        uint n = atomicAdd(list_count, 1u);
        if (n < LISTED) listed[n] = i;
    }
    barrier();
    from_list = list_count <= LISTED;
}

void clear_bins() {
    barrier();
    for (uint b = gl_LocalInvocationID.x; b < BINS; b += THREADS) {
        counts[b] = 0u;
        [[unroll]] for (uint l = 0; l < 3u; l++) limbs[l][b] = 0u;
    }
    barrier();
}

// A mass in limbs of 13, 14 and 14 bits, of which 2^18 sum up in a uint; most masses are small.
void add_mass(uint bin, uint64_t mass) {
    uint high = uint(mass >> 28);
    uint middle = uint(mass >> 14) & 0x3fffu;
    uint low = uint(mass) & 0x3fffu;
    if (high != 0u) atomicAdd(limbs[0][bin], high);
    if (middle != 0u) atomicAdd(limbs[1][bin], middle);
    if (low != 0u) atomicAdd(limbs[2][bin], low);
}

void sum_bins() {
    barrier();
    for (uint b = gl_LocalInvocationID.x; b < BINS; b += THREADS) {
        masses[b] = (uint64_t(limbs[0][b]) << 28) + (uint64_t(limbs[1][b]) << 14) + uint64_t(limbs[2][b]);
    }
    barrier();
    for (uint g = gl_LocalInvocationID.x; g < GROUP; g += THREADS) {
        uint count = 0u;
        uint64_t mass = 0ul;
        for (uint b = g * GROUP; b < g * GROUP + GROUP; b++) {
            count += counts[b];
            mass += masses[b];
        }
        count_groups[g] = count;
        mass_groups[g] = mass;
    }
    barrier();
}

uint64_t total_mass() {
    uint64_t total = 0ul;
    for (uint g = 0u; g < GROUP; g++) total += mass_groups[g];
    return total;
}

// The first bin at which the cumulative sum exceeds `target`, which then counts from the start of that bin.
uint find_bin(bool of_counts, inout uint64_t target) {
    uint g = 0u;
    for (; g < GROUP - 1u; g++) {
        uint64_t sum = of_counts ? uint64_t(count_groups[g]) : mass_groups[g];
        if (target < sum) break;
        target -= sum;
    }
    uint b = g * GROUP;
    for (; b < g * GROUP + GROUP - 1u; b++) {
        uint64_t sum = of_counts ? uint64_t(counts[b]) : masses[b];
        if (target < sum) break;
        target -= sum;
    }
    return b;
}

// A radix select among the elements that share what has been fixed so far. Keys are taken upside down: larger ones
// first.
struct Select {
    bool wanted;
    uint bin;      // of the linear pass
    uint prefix;   // fixed high bits of ~key
    uint64_t target;
};

bool candidate(Select s, uint bin, uint flipped, uint fixed_mask) {
    return s.wanted && bin == s.bin && (flipped & fixed_mask) == s.prefix;
}

// Thresholds of top_k and top_p in one set of passes; `ties` is how many elements equal to the top_k threshold pass.
void find_thresholds(bool by_count, bool by_mass, out uint count_key, out uint mass_key, out uint ties) {
    clear_bins();
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        float x = logit(i);
        uint bin = distance_bin(x, most);
        if (by_count) atomicAdd(counts[bin], 1u);
        if (by_mass) add_mass(bin, mass_of(token_weight(x, most, 1.0)));
    }
    sum_bins();
    Select k = Select(by_count, 0u, 0u, uint64_t(pc.p.top_k - 1u));
    Select p = Select(by_mass, 0u, 0u, 0ul);
    if (by_mass) {
        uint64_t wanted = mass_fraction(total_mass(), pc.p.top_p);
        p.target = wanted == 0ul ? 0ul : wanted - 1ul;
        p.bin = find_bin(false, p.target);
    }
    if (by_count) k.bin = find_bin(true, k.target);
    // A token must pass both filters, but the passes below look at both bins.
    make_list(max(k.bin, p.bin));

    for (int shift = 24; shift >= 0; shift -= 8) {
        uint fixed_mask = shift == 24 ? 0u : 0xffffff00u << uint(shift);
        clear_bins();
        uint end = walk_end(pc.p.cols);
        for (uint n = walk_start(0u); n < end; n += THREADS) {
            float x = logit(walked(n));
            uint bin = distance_bin(x, most);
            uint flipped = ~ordered_key(floatBitsToUint(x), DTYPE_F32);
            uint digit = (flipped >> uint(shift)) & 0xffu;
            if (candidate(k, bin, flipped, fixed_mask)) atomicAdd(counts[digit], 1u);
            if (candidate(p, bin, flipped, fixed_mask)) add_mass(digit, mass_of(token_weight(x, most, 1.0)));
        }
        sum_bins();
        if (by_count) k.prefix |= find_bin(true, k.target) << uint(shift);
        if (by_mass) p.prefix |= find_bin(false, p.target) << uint(shift);
    }
    count_key = by_count ? ~k.prefix : 0u;
    mass_key = by_mass ? ~p.prefix : 0u;
    ties = by_count ? uint(k.target) + 1u : NONE;
}

// What passes the filters: keys above `key`, and those equal to it at indices up to `last_tie`.
struct Kept {
    uint key;
    uint last_tie;
};

bool keeps(Kept kept, float x, uint i) {
    uint key = ordered_key(floatBitsToUint(x), DTYPE_F32);
    return key > kept.key || (key == kept.key && i <= kept.last_tie);
}

// The first index at which a cumulative sum over the row exceeds `target`: of masses of what is kept (target is then
// the fraction given by `uniform01`), or of elements equal to kept.key.
uint find_index(bool of_counts, Kept kept, uint64_t target, float uniform01) {
    float inverse = inverse_temperature(pc.p.temperature);
    // Bins of 2^shift indices cover the range; 8 bits fewer each time.
    int shift = max(findMSB(pc.p.cols - 1u) - 7, 0);
    uint first = 0u;
    uint end = pc.p.cols;
    for (bool whole = true, single = false; !single; whole = false) {
        clear_bins();
        uint last = walk_end(end);
        for (uint n = walk_start(first); n < last; n += THREADS) {
            uint i = walked(n);
            if (i < first || i >= end) continue;
            float x = logit(i);
            if (of_counts) {
                if (ordered_key(floatBitsToUint(x), DTYPE_F32) == kept.key) atomicAdd(counts[(i - first) >> shift], 1u);
            } else if (keeps(kept, x, i)) {
                add_mass((i - first) >> shift, mass_of(token_weight(x, most, inverse)));
            }
        }
        sum_bins();
        if (whole && !of_counts) target = mass_fraction(total_mass(), uniform01);
        first += find_bin(of_counts, target) << shift;
        end = min(end, first + (1u << shift));
        single = shift == 0;
        shift = max(shift - 8, 0);
    }
    return first;
}

void find_largest() {
    uint key = 0u;
    uint index = NONE;
    for (uint i = gl_LocalInvocationID.x; i < pc.p.cols; i += THREADS) {
        uint candidate_key = ordered_key(floatBitsToUint(logit(i)), DTYPE_F32);
        if (index == NONE || candidate_key > key) {
            key = candidate_key;
            index = i;
        }
    }
    if (gl_LocalInvocationID.x == 0u) {
        best_key = 0u;
        best_index = NONE;
    }
    barrier();
    if (index != NONE) atomicMax(best_key, key);
    barrier();
    if (index != NONE && key == best_key) atomicMin(best_index, index);
    barrier();
}

void main() {
    uint row = flat_workgroup();
    if (row >= pc.p.rows || pc.p.cols == 0u) return;
    row_base = row * pc.p.cols;

    find_largest();
    uint token = best_index;
    most = logit(token);
    if (pc.p.temperature > 0.0 && is_finite(most)) {
        bool by_count = pc.p.top_k > 0u && pc.p.top_k < pc.p.cols;
        bool by_mass = pc.p.top_p > 0.0 && pc.p.top_p < 1.0;
        Kept kept = Kept(pc.p.min_p > 0.0 ? min_p_key(most, pc.p.min_p) : 0u, NONE);
        if (by_count || by_mass) {
            uint count_key, mass_key, ties;
            find_thresholds(by_count, by_mass, count_key, mass_key, ties);
            kept.key = max(kept.key, max(count_key, mass_key));
            if (by_count && kept.key == count_key) kept.last_tie = find_index(true, kept, uint64_t(ties - 1u), 0.0);
        }
        token = find_index(false, kept, 0ul, F32s(pc.address[1]).v[row]);
    }
    if (gl_LocalInvocationID.x == 0u) U32s(pc.address[2]).v[row] = token;
}
