// What the sampling kernels share: a token drawn from softmax(logits[row] / temperature) after the filters of MLX-LM's sampler.
// Each filter is on when its parameter is: it judges the whole row's probabilities p = softmax(logits), and a token must pass
// all of them:
//
//   top_p  in (0, 1):  the tokens strictly likelier than it have a mass < top_p (tokens of equal logits stay together)
//   min_p  > 0:        logit >= max + ln(min_p)
//   top_k  > 0:        it is among the top_k largest logits; of equal logits the lower index goes first
//
// The draw is the inverse CDF in index order: the first token whose cumulative mass exceeds uniform * total. Temperature 0, or a
// maximum that is infinite or NaN, takes the first largest logit instead (NaN counts as the largest).
//
// Nothing is sorted, and many workgroups share the work, each with a slice of SLICE logits of a row:
//
//   sample_best       the largest logit of each slice (the head of a fused decoder leaves the same for its workgroups)
//   sample_histogram  counts and masses by distance from the maximum, 256 bins of 1/8; only for top_k and top_p
//   sample_slices     the bin in which the stricter of both thresholds lies; the mass of what is kept for sure of each slice, and
//                     a list of what lies in that bin
//   sample_draw       the thresholds among the list, then the slice, then the token; one workgroup a row
//
// Masses are integers (sample.h): no order of additions matters, and so the token does not depend on the device.
// All kernels need THREADS = 256, as many as there are bins and slices of a row at most: cols <= 262,144.

#define PUSH SamplePush
#include "common.glsl"
#include "sample.h"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;

layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U64s { uint64_t v[]; };

const uint LOGITS = 0u, BEST = 1u, SCRATCH = 2u;
const uint BINS = SAMPLE_BINS, SLICE = SAMPLE_SLICE;
const uint PER_THREAD = SLICE / SAMPLE_BINS;
const uint NONE = 0xffffffffu;

// ---- scratch memory of a row: words ---------------------------------------------------------------------------------------

const uint COUNTS = 0u, LIMBS = BINS;    // the histogram: counts, masses in three limbs; cleared by who leaves the best
const uint LISTED = 4u * BINS;           // entries of the list; cleared too
const uint LAST_BIN = LISTED + 1u;       // the bin of the list
const uint WANTED = LISTED + 2u;         // which thresholds lie there: 1 top_k, 2 top_p
const uint TARGETS = LISTED + 4u;        // of both selections, counted from the start of the bin: 64 bits each
const uint SLICES = LISTED + 8u;         // the mass of each slice: 64 bits
const uint LIST = SLICES + 2u * BINS;    // (index, float bits) of the logits in the bin

bool by_count() { return pc.p.top_k > 0u && pc.p.top_k < pc.p.cols; }
bool by_mass() { return pc.p.top_p > 0.0 && pc.p.top_p < 1.0; }

uint slices() { return (pc.p.cols + SLICE - 1u) / SLICE; }
uint64_t scratch(uint row) {
    uint words = LIST + (by_count() || by_mass() ? 2u * pc.p.cols : 0u);
    return pc.address[SCRATCH] + uint64_t(row) * uint64_t(words) * 4ul;
}

uint thread() { return gl_LocalInvocationID.x; }
float logit(uint row, uint i) { return load_float(pc.address[LOGITS], row * pc.p.cols + i, DTYPE_IN); }
uint key_of(float x) { return ordered_key(floatBitsToUint(x), DTYPE_F32); }

// ---- reductions over the workgroup (all threads must call them; the result is everyone's) -----------------------------------

shared uint reduce_words[128];

uint largest(uint x) {
    x = subgroupMax(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (subgroupElect()) reduce_words[gl_SubgroupID] = x;
    barrier();
    for (uint i = 0; i < gl_NumSubgroups; i++) x = max(x, reduce_words[i]);
    return x;
}

// (index, key) of the best of all threads' candidates: of equal keys the lowest index.
uvec2 best_of(uvec2 mine) {
    uint key = largest(mine.y);
    return uvec2(~largest(mine.y == key ? ~mine.x : 0u), key);
}

// A thread's best of what was left per slice or workgroup of a row.
uvec2 best_of_parts(uint row) {
    uvec2 best = uvec2(NONE, 0u);
    for (uint first = thread(); first < pc.p.bests; first += 3u * THREADS) {
        uvec2 parts[3]; // loads that do not wait for each other
        [[unroll]] for (uint n = 0; n < 3u; n++) parts[n] = U32x2s(pc.address[BEST]).v[row * pc.p.bests + min(first + n * THREADS, pc.p.bests - 1u)];
        [[unroll]] for (uint n = 0; n < 3u; n++)
            if (parts[n].y > best.y || (parts[n].y == best.y && parts[n].x < best.x)) best = parts[n];
    }
    return best;
}

float value_of(uint key) { return uintBitsToFloat((key >> 31) != 0u ? key & 0x7fffffffu : ~key); }

// ---- masses -----------------------------------------------------------------------------------------------------------------

shared uint counts[BINS];
shared uint limbs[3][BINS];

void clear_bins() {
    barrier();
    counts[thread()] = 0u;
    [[unroll]] for (uint l = 0; l < 3u; l++) limbs[l][thread()] = 0u;
    barrier();
}

// Limbs of 13, 14 and 14 bits, of which 2^18 sum up in a uint.
uvec3 limbs_of(uint64_t mass) { return uvec3(uint(mass >> 28), uint(mass >> 14) & 0x3fffu, uint(mass) & 0x3fffu); }
uint64_t mass_of_limbs(uvec3 sums) { return (uint64_t(sums.x) << 28) + (uint64_t(sums.y) << 14) + uint64_t(sums.z); }

// Most masses are small.
void add_mass(uint bin, uint64_t mass) {
    uvec3 parts = limbs_of(mass);
    [[unroll]] for (uint l = 0; l < 3u; l++) if (parts[l] != 0u) atomicAdd(limbs[l][bin], parts[l]);
}

uint64_t bin_mass(uint bin) { return mass_of_limbs(uvec3(limbs[0][bin], limbs[1][bin], limbs[2][bin])); }

shared uint64_t running[SAMPLE_BINS];
shared uint64_t running_total;
shared uint found;
shared uint64_t found_target;

// The sum over the threads up to this one, and over all.
uint64_t running_sum(uint64_t x, out uint64_t total) {
    for (uint distance = 1u; distance < THREADS; distance *= 4u) {
        barrier();
        running[thread()] = x;
        barrier();
        [[unroll]] for (uint i = 1u; i < 4u; i++) if (thread() >= i * distance) x += running[thread() - i * distance];
    }
    if (thread() == THREADS - 1u) running_total = x;
    barrier();
    total = running_total;
    return x;
}

// The thread at whose x the running sum passes `target`, which then counts from there.
uint find(uint64_t upto, uint64_t x, inout uint64_t target) {
    barrier();
    if (upto > target && upto - x <= target) {
        found = thread();
        found_target = target - (upto - x);
    }
    barrier();
    target = found_target;
    return found;
}
