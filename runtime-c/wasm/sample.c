// Kernel sample; sample.glsl defines the filters and the draw, sample.h the arithmetic that makes both choose the same
// token.
//
// A vocabulary is walked in runs of RUN floats, of which most hold nothing that matters and are passed over by SIMD
// comparisons. Thresholds: one pass fills the linear histogram. Then the few logits of the threshold's bin are copied
// out and the radix select runs over the copy.

#include "../../shaders/include/sample.h"
#include "simd.h"

enum { RUN = 512, NEAR_BINS = 64, COPIED = 16384, MAX_RUNS = 524288 / RUN };
#define NONE 0xffffffffu

// A row of logits. Where there is a mask, bit i % 32 of word i / 32 is set for those that may be chosen; the others are -inf.
typedef struct Logits {
    const uint8_t *in;
    const uint32_t *mask;
    size_t base;
    uint32_t cols, dtype;
} Logits;

// How the token of a row is chosen; see sample.glsl.
typedef struct Settings {
    float temperature, top_p, min_p;
    uint32_t top_k;
} Settings;

static Settings settings_of(const float *s, uint32_t cols) {
    float most = (float)cols, top_k = s[TOP_K_AT] < most ? s[TOP_K_AT] : most;
    return (Settings){
        .temperature = s[TEMPERATURE_AT],
        .top_p = s[TOP_P_AT],
        .min_p = s[MIN_P_AT],
        .top_k = top_k >= 1.0f && s[TOP_K_AT] >= 1.0f ? (uint32_t)top_k : 0,
    };
}

// A run of a row, padded with -inf to a multiple of four.
typedef struct Run {
    float x[RUN];
    uint32_t first, n;
} Run;

// Runs begin at whole words of the mask.
static void mask_run(const uint32_t *words, Run *run) {
    for (uint32_t first = 0; first < run->n; first += 32) {
        uint32_t word = words[(run->first + first) / 32];
        if (word == 0xffffffffu) continue;
        for (uint32_t i = 0; i < min_u32(32, run->n - first); i++)
            if (!(word >> i & 1u)) run->x[first + i] = -__builtin_inff();
    }
}

static bool next_run(const Logits *row, Run *run) {
    run->first += run->n;
    if (run->first >= row->cols) return false;
    run->n = min_u32(RUN, row->cols - run->first);
    load_floats(run->x, row->in, row->base + run->first, run->n, row->dtype);
    if (row->mask) mask_run(row->mask, run);
    for (uint32_t i = run->n; i & 3u; i++) run->x[i] = -__builtin_inff();
    return true;
}

// Whether any of the four logits at x reaches `least`, or is NaN.
INLINE bool any_reaches(const float *x, float least) { return !__builtin_reduce_and(f4_load(x) < least); }

static uint32_t key_of(float x) { return ordered_key(float_bits(x), DTYPE_F32); }
static float value_of(uint32_t key) { return bits_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// The index of the first largest logit, and that logit.
static uint32_t find_largest(const Logits *row, float *most) {
    uint32_t best_key = 0, best = NONE;
    Run run = {.first = 0};
    float least = -__builtin_inff();
    while (next_run(row, &run)) {
        for (uint32_t i = 0; i < run.n; i += 4) {
            if (!any_reaches(run.x + i, least)) continue;
            for (uint32_t j = i; j < min_u32(i + 4, run.n); j++) {
                uint32_t key = key_of(run.x[j]);
                if (best != NONE && key <= best_key) continue;
                best_key = key;
                best = run.first + j;
                if (!m_isnan(run.x[j])) least = run.x[j];
            }
        }
    }
    *most = value_of(best_key);
    return best;
}

// ---- thresholds -----------------------------------------------------------------------------------------------------

typedef struct Histogram {
    uint32_t counts[SAMPLE_BINS];
    uint64_t masses[SAMPLE_BINS];
} Histogram;

// The first bin at which the cumulative sum exceeds *target, which then counts from the start of that bin; SAMPLE_BINS
// if none.
static uint32_t find_bin(const Histogram *h, bool of_counts, uint64_t *target) {
    for (uint32_t b = 0; b < SAMPLE_BINS; b++) {
        uint64_t sum = of_counts ? h->counts[b] : h->masses[b];
        if (*target < sum) return b;
        *target -= sum;
    }
    return SAMPLE_BINS;
}

// exp(x - most) of a run, and the sum of their masses: per limb, which SIMD can do.
static uint64_t weigh_run(const Run *run, float most, float inverse, float *weights) {
    uint32_t high = 0, middle = 0, low = 0;
    for (uint32_t i = 0; i < run->n; i++) weights[i] = token_weight(run->x[i], most, inverse);
    for (uint32_t i = 0; i < run->n; i++) {
        float a = weights[i] * 8192.0f;
        int32_t h = (int32_t)a;
        float b = (a - (float)h) * 16384.0f;
        int32_t m = (int32_t)b;
        high += (uint32_t)h;
        middle += (uint32_t)m;
        low += (uint32_t)(int32_t)((b - (float)m) * 16384.0f);
    }
    return ((uint64_t)high << 28) + ((uint64_t)middle << 14) + low;
}

// The histogram of the `bins` nearest the maximum; gives the mass of the whole row when masses are wanted.
static uint64_t near_histogram(const Logits *row, float most, bool by_mass, uint32_t bins, Histogram *h) {
    float weights[RUN], least = bins == SAMPLE_BINS ? -__builtin_inff() : most - (float)(bins + 1) / 8.0f;
    uint64_t total = 0;
    *h = (Histogram){0};
    Run run = {.first = 0};
    while (next_run(row, &run)) {
        if (by_mass) total += weigh_run(&run, most, 1.0f, weights);
        for (uint32_t i = 0; i < run.n; i += 4) {
            if (!any_reaches(run.x + i, least)) continue;
            for (uint32_t j = i; j < min_u32(i + 4, run.n); j++) {
                uint32_t bin = distance_bin(run.x[j], most, SAMPLE_STEPS);
                if (bin >= bins) continue;
                h->counts[bin]++;
                if (by_mass) h->masses[bin] += mass_of(weights[j]);
            }
        }
    }
    return total;
}

// The select of top_k or top_p: the bin of the linear pass, then the high bits of ~key fixed so far.
typedef struct Select {
    bool wanted;
    uint32_t bin, prefix;
    uint64_t target;
} Select;

static bool candidate(const Select *s, uint32_t bin, uint32_t flipped, uint32_t fixed_mask) {
    return s->wanted && bin == s->bin && (flipped & fixed_mask) == s->prefix;
}

// Copies the logits of the selected bins out of the row, when they fit.
static Logits copy_bins(const Logits *row, float most, const Select *k, const Select *p, uint32_t n, float *copied) {
    if (n > COPIED) return *row;
    uint32_t last = p->wanted && (!k->wanted || p->bin > k->bin) ? p->bin : k->bin;
    float least = last == SAMPLE_BINS - 1 ? -__builtin_inff() : most - (float)(last + 2) / 8.0f;
    n = 0;
    Run run = {.first = 0};
    while (next_run(row, &run)) {
        for (uint32_t i = 0; i < run.n; i += 4) {
            if (!any_reaches(run.x + i, least)) continue;
            for (uint32_t j = i; j < min_u32(i + 4, run.n); j++) {
                uint32_t bin = distance_bin(run.x[j], most, SAMPLE_STEPS);
                if ((k->wanted && bin == k->bin) || (p->wanted && bin == p->bin)) copied[n++] = run.x[j];
            }
        }
    }
    return (Logits){.in = (const uint8_t *)copied, .cols = n, .dtype = DTYPE_F32};
}

typedef struct Thresholds {
    uint32_t count_key, mass_key;
    uint32_t ties; // how many elements equal to count_key pass
} Thresholds;

static Thresholds find_thresholds(const Logits *row, const Settings *s, float most, bool by_count, bool by_mass) {
    Histogram h;
    Select k = {.wanted = by_count}, m = {.wanted = by_mass};
    for (uint32_t bins = NEAR_BINS;; bins = SAMPLE_BINS) { // nearly always the nearest bins suffice
        uint64_t wanted = mass_fraction(near_histogram(row, most, by_mass, bins, &h), s->top_p);
        k.target = s->top_k - 1u;
        m.target = wanted ? wanted - 1 : 0;
        k.bin = by_count ? find_bin(&h, true, &k.target) : 0;
        m.bin = by_mass ? find_bin(&h, false, &m.target) : 0;
        if (k.bin < SAMPLE_BINS && m.bin < SAMPLE_BINS) break;
    }
    float copied[COPIED];
    uint32_t n = (by_count ? h.counts[k.bin] : 0) + (by_mass ? h.counts[m.bin] : 0);
    Logits near = copy_bins(row, most, &k, &m, n, copied);

    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t fixed_mask = shift == 24 ? 0 : 0xffffff00u << shift;
        h = (Histogram){0};
        Run run = {.first = 0};
        while (next_run(&near, &run)) {
            for (uint32_t i = 0; i < run.n; i++) {
                float x = run.x[i];
                uint32_t bin = distance_bin(x, most, SAMPLE_STEPS), flipped = ~key_of(x), digit = flipped >> shift & 0xffu;
                if (candidate(&k, bin, flipped, fixed_mask)) h.counts[digit]++;
                if (candidate(&m, bin, flipped, fixed_mask)) h.masses[digit] += mass_of(token_weight(x, most, 1.0f));
            }
        }
        if (by_count) k.prefix |= find_bin(&h, true, &k.target) << shift;
        if (by_mass) m.prefix |= find_bin(&h, false, &m.target) << shift;
    }
    return (Thresholds){
        .count_key = by_count ? ~k.prefix : 0,
        .mass_key = by_mass ? ~m.prefix : 0,
        .ties = by_count ? (uint32_t)k.target + 1 : NONE,
    };
}

// ---- the draw -------------------------------------------------------------------------------------------------------

// Logits that pass the filters: keys above `key`, and those equal to it at indices up to `last_tie`.
typedef struct Kept {
    uint32_t key, last_tie;
} Kept;

// Index of the `ties`-th element whose key is `key`.
static uint32_t find_tie(const Logits *row, uint32_t key, uint32_t ties) {
    Run run = {.first = 0};
    float value = value_of(key);
    while (next_run(row, &run)) {
        for (uint32_t i = 0; i < run.n; i += 4) {
            if (!any_reaches(run.x + i, value)) continue;
            for (uint32_t j = i; j < min_u32(i + 4, run.n); j++) {
                if (key_of(run.x[j]) == key && --ties == 0) return run.first + j;
            }
        }
    }
    return NONE;
}

// Masses of a run's kept elements, in `masses` (0 for the others); gives their sum.
static uint64_t kept_masses(const Run *run, Kept kept, float most, float inverse, uint64_t *masses) {
    uint64_t total = 0;
    float least = value_of(kept.key);
    for (uint32_t i = 0; i < run->n; i += 4) {
        masses[i] = masses[i + 1] = masses[i + 2] = masses[i + 3] = 0;
        if (!any_reaches(run->x + i, least)) continue;
        for (uint32_t j = i; j < min_u32(i + 4, run->n); j++) {
            uint32_t key = key_of(run->x[j]);
            if (key < kept.key || (key == kept.key && run->first + j > kept.last_tie)) continue;
            masses[j] = mass_of(token_weight(run->x[j], most, inverse));
            total += masses[j];
        }
    }
    return total;
}

// Inverse CDF: sums of runs first, then the run that the target falls into.
static uint32_t draw(const Logits *row, Kept kept, float most, float inverse, float uniform) {
    uint64_t sums[MAX_RUNS], masses[RUN], total = 0;
    uint32_t runs = 0;
    bool all = kept.key == 0;
    float weights[RUN];
    Run run = {.first = 0};
    while (next_run(row, &run)) {
        if (all) sums[runs] = weigh_run(&run, most, inverse, weights);
        else sums[runs] = kept_masses(&run, kept, most, inverse, masses);
        total += sums[runs++];
    }
    uint64_t target = mass_fraction(total, uniform);
    uint32_t r = 0;
    for (; target >= sums[r]; r++) target -= sums[r];
    run = (Run){.first = r * RUN};
    next_run(row, &run);
    kept_masses(&run, kept, most, inverse, masses);
    uint32_t i = 0;
    for (; target >= masses[i]; i++) target -= masses[i];
    return run.first + i;
}

void k_sample(const Call *call) {
    PUSH(SamplePush);
    const float *settings = (const float *)call->buffer[1];
    const float *uniforms = (const float *)call->buffer[2];
    const uint32_t *masks = (const uint32_t *)call->buffer[4];
    for (size_t r = 0; r < p->rows && p->cols; r++) {
        const uint32_t *mask = masks ? masks + r * ((p->cols + 31) / 32) : NULL;
        Logits row = {.in = call->buffer[0], .mask = mask, .base = r * p->cols, .cols = p->cols, .dtype = call->spec[1]};
        Settings s = settings ? settings_of(settings + r * p->settings_stride, p->cols) : (Settings){0};
        float most;
        uint32_t token = find_largest(&row, &most);
        if (s.temperature > 0.0f && is_finite(most)) {
            bool by_count = s.top_k > 0 && s.top_k < p->cols, by_mass = s.top_p > 0.0f && s.top_p < 1.0f;
            Kept kept = {.key = s.min_p > 0.0f ? min_p_key(most, s.min_p) : 0, .last_tie = NONE};
            if (by_count || by_mass) {
                Thresholds t = find_thresholds(&row, &s, most, by_count, by_mass);
                if (t.count_key > kept.key) kept.key = t.count_key;
                if (t.mass_key > kept.key) kept.key = t.mass_key;
                if (by_count && kept.key == t.count_key) kept.last_tie = find_tie(&row, kept.key, t.ties);
            }
            token = draw(&row, kept, most, inverse_temperature(s.temperature), uniforms[r]);
        }
        ((uint32_t *)call->buffer[3])[r] = is_finite(most) ? token : NO_TOKEN;
    }
}
