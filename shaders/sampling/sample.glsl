// The common part of the sampling kernels: a token drawn from softmax(logits[row] / temperature) after the filters of MLX-LM's sampler.
// Each row has its own settings. A filter is on when its setting is: it judges the whole row's probabilities p = softmax(logits), and a token must pass
// all of them:
//
//   top_p  in (0, 1):  the tokens strictly likelier than it have a mass < top_p (tokens of equal logits stay together)
//   min_p  > 0:        logit >= max + ln(min_p)
//   top_k  > 0:        it is among the top_k largest logits; of equal logits the lower index goes first
//
// Where there is a mask, the tokens whose bits are 0 in it have the logit -inf for all of this.
//
// The draw is the inverse CDF in index order: the first token whose cumulative mass exceeds uniform * total.
// Temperature 0 takes the first largest logit instead. A row whose largest logit is infinite or NaN (which counts as
// the largest) has no token. It gives NO_TOKEN where CHECKED asks for that, else the index of the largest.
//
// Nothing is sorted, and many workgroups share the work, each with a slice of SLICE logits of a row; grids are (slices, rows):
//
//   sample_best       the largest logit of each slice (the head of a fused decoder leaves the same for its workgroups)
//   sample_largest    the same, and of each row the workgroup that is done last takes the token: where nothing is drawn
//   sample_histogram  counts and masses by distance from the maximum, 256 bins of 1/8; for top_p, or a large top_k
//   sample_draw       the mass of each slice and a list of logits, as slices.glsl says; of each row the workgroup that is
//                     done last draws from them, as select.glsl says; one more a row finds the number to draw with
//   logprobs          with the same mass and list: log probabilities of the token and of the likeliest ones
//
// Of `few`, a small top_k and the largest logits of many parts, no kernel counts all logits. The top_k largest are not
// below the top_k-th of those, so the list holds all that are not below it.
//
// Masses are integers (sample.h): no order of additions matters, and so the token does not depend on the device.
// All kernels need THREADS = 256, as many as there are bins and slices of a row at most. A slice has 1,024 logits, or 2,048 of rows of
// more than 262,144: cols <= 524,288.

#ifndef COLS // decode/draw.comp has its own
#define PUSH SamplePush
#define COLS pc.p.cols
#include "include/common.glsl"

layout(constant_id = 1) const uint DTYPE_IN = DTYPE_F32;
layout(constant_id = 2) const uint PER_THREAD = 4; // logits of a slice that a thread looks at

uint thread() { return gl_LocalInvocationID.x; }

// Whether a token may be chosen: bit i % 32 of word i / 32 of the row's mask, if there is a mask.
bool is_allowed(uint row, uint i) {
    if (pc.address[MASK] == 0ul) return true;
    return ((U32s(pc.address[MASK]).v[row * ((COLS + 31u) / 32u) + (i >> 5)] >> (i & 31u)) & 1u) != 0u;
}
#else
bool is_allowed(uint row, uint i) { return true; }
#endif
#include "include/sample.h"

const uint BINS = SAMPLE_BINS;
const uint SLICE = PER_THREAD * SAMPLE_BINS;
const uint MAX_PER_THREAD = 8u; // arrays of a size that is specialized cannot be assigned

// The largest top_k of which `few` holds, and parts to one of it.
const uint MAX_FEW = 128u, PARTS_TO_ONE = 4u;

// ---- scratch memory of a row: words ---------------------------------------------------------------------------------------

const uint COUNTS = 0u, LIMBS = BINS;              // the histogram: counts, masses in four limbs; cleared by who leaves the best
const uint LISTED = 5u * BINS;                     // entries of the list; cleared too
const uint FINISHED = LISTED + 1u;                 // slices that are done; cleared too
const uint UNIFORM = LISTED + 2u;                  // float bits of the number that a token is drawn with
const uint SLICE_MASSES = LISTED + 4u;             // the mass of each slice, 64 bits, and of none
const uint LIST = SLICE_MASSES + 2u * (BINS + 1u); // (index, float bits) of logits

uint slices() { return (COLS + SLICE - 1u) / SLICE; }

// The settings of the row at hand. A value out of range switches its filter off, and a temperature below 0 is 0.
float temperature = 0.0, top_p = 0.0, min_p = 0.0;
uint top_k = 0u;
bool few = false;

bool by_count() { return top_k > 0u && top_k < COLS; }
bool by_mass() { return top_p > 0.0 && top_p < 1.0; }
bool draws() { return temperature > 0.0; }

// Takes the settings of a row; without any it takes the largest logit.
void take_settings(uint row, uint64_t settings) {
    if (settings == 0ul) return;
    F32s s = F32s(settings + uint64_t(row * pc.p.settings_stride) * 4ul);
    temperature = s.v[TEMPERATURE_AT];
    top_p = s.v[TOP_P_AT];
    min_p = s.v[MIN_P_AT];
    float wanted = s.v[TOP_K_AT];
    top_k = wanted >= 1.0 ? uint(min(wanted, float(COLS))) : 0u;
    few = top_k > 0u && top_k <= MAX_FEW && top_k * PARTS_TO_ONE <= pc.p.bests;
}

uint64_t scratch(uint row) { return pc.address[SCRATCH] + uint64_t(row) * uint64_t(LIST + 2u * COLS) * 4ul; }

const uint NEGATIVE_INFINITY = 0xff800000u;

// The logit of a token; -inf if the mask forbids it.
float logit(uint row, uint i) {
    float x = load_float(pc.address[LOGITS], row * COLS + i, DTYPE_IN);
    return is_allowed(row, i) ? x : uintBitsToFloat(NEGATIVE_INFINITY);
}

// Whether a draw may take a token. A logit of -inf has no mass, so thresholds need not look at the many that a mask leaves.
bool may_count(float x) { return floatBitsToUint(x) != NEGATIVE_INFINITY; }

uint key_of(float x) { return ordered_key(floatBitsToUint(x), DTYPE_F32); }
float value_of(uint key) { return uintBitsToFloat((key >> 31) != 0u ? key & 0x7fffffffu : ~key); }

// ---- reductions over the workgroup (all threads must call them; the result is everyone's) -----------------------------------

shared uvec2 reduce_words[128];

uvec2 largest(uvec2 x) {
    x = subgroupMax(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (subgroupElect()) reduce_words[gl_SubgroupID] = x;
    barrier();
    for (uint i = 0; i < gl_NumSubgroups; i++) x = max(x, reduce_words[i]);
    return x;
}
uint largest(uint x) { return largest(uvec2(x, 0u)).x; }

// Of an (index, ordered key) of each thread the lowest index with the largest key.
uvec2 first_largest(uvec2 best) {
    uint key = largest(best.y);
    return uvec2(~largest(best.y == key ? ~best.x : 0u), key);
}

uvec2 best_of_slice(uint row, uint slice) {
    uvec2 best = uvec2(NO_TOKEN, 0u);
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        uint i = slice * SLICE + n * THREADS + thread();
        if (i >= COLS) continue;
        uint key = key_of(logit(row, i));
        if (best.x == NO_TOKEN || key > best.y) best = uvec2(i, key);
    }
    return first_largest(best);
}

// ---- the largest logits of a row's parts, SAMPLE_PARTS of them at most ------------------------------------------------------------

const uint PART_ROUNDS = SAMPLE_PARTS / SAMPLE_BINS;

// (index, ordered key) of a part each, or (NO_TOKEN, 0).
struct Parts {
    uvec2 v[PART_ROUNDS];
};

Parts load_parts(uint row) {
    Parts parts;
    [[unroll]] for (uint n = 0; n < PART_ROUNDS; n++) {
        uint i = n * THREADS + thread();
        parts.v[n] = U32x2s(pc.address[BEST]).v[row * pc.p.bests + min(i, pc.p.bests - 1u)];
        if (i >= pc.p.bests) parts.v[n] = uvec2(NO_TOKEN, 0u);
    }
    return parts;
}

uint best_key(Parts parts) {
    uint key = 0u;
    [[unroll]] for (uint n = 0; n < PART_ROUNDS; n++)
        key = max(key, parts.v[n].y);
    return key;
}

// The lowest index of those whose key is the largest.
uint best_index(Parts parts, uint key) {
    uint index = 0u; // upside down
    [[unroll]] for (uint n = 0; n < PART_ROUNDS; n++)
        if (parts.v[n].y == key) index = max(index, ~parts.v[n].x);
    return ~largest(index);
}

// ---- masses -----------------------------------------------------------------------------------------------------------------

shared uint counts[BINS];
shared uint limbs[4][BINS];

void clear_bins() {
    barrier();
    counts[thread()] = 0u;
    [[unroll]] for (uint l = 0; l < 4u; l++)
        limbs[l][thread()] = 0u;
    barrier();
}

// Limbs of 13 bits, of which 2^19 sum up in a uint.
uvec4 limbs_of(uint64_t mass) {
    return uvec4(uint(mass >> 39), uint(mass >> 26) & 0x1fffu, uint(mass >> 13) & 0x1fffu, uint(mass) & 0x1fffu);
}
uint64_t mass_of_limbs(uvec4 sums) {
    return (uint64_t(sums.x) << 39) + (uint64_t(sums.y) << 26) + (uint64_t(sums.z) << 13) + uint64_t(sums.w);
}

// Most masses are small.
void add_mass(uint bin, uint64_t mass) {
    uvec4 parts = limbs_of(mass);
    [[unroll]] for (uint l = 0; l < 4u; l++)
        if (parts[l] != 0u) atomicAdd(limbs[l][bin], parts[l]);
}

uint64_t bin_mass(uint bin) { return mass_of_limbs(uvec4(limbs[0][bin], limbs[1][bin], limbs[2][bin], limbs[3][bin])); }

const uint RUN = 16u;
shared uint64_t running[SAMPLE_BINS];
shared uint64_t run_sums[SAMPLE_BINS / RUN];
shared uint found;
shared uint64_t found_target;

// The sum over the threads up to this one, and over all: first in runs of 16.
uint64_t running_sum(uint64_t x, out uint64_t total) {
    barrier();
    running[thread()] = x;
    barrier();
    uint run = thread() / RUN;
    [[unroll]] for (uint i = 0; i < RUN - 1u; i++)
        if (i < thread() % RUN) x += running[run * RUN + i];
    if (thread() % RUN == RUN - 1u) run_sums[run] = x;
    barrier();
    total = 0ul;
    [[unroll]] for (uint i = 0; i < SAMPLE_BINS / RUN; i++) {
        if (i < run) x += run_sums[i];
        total += run_sums[i];
    }
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
