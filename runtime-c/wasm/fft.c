// Kernels fft_table, fft_pass and fft_map; see the shaders of the same names. A pass gathers eight columns into a tile,
// a column a lane, transforms them there and scatters them. So every radix is plain vector code.

#include "simd.h"
#define FFT_REAL f4
#include "../../shaders/include/math/fft.h"

enum { LANES = 8, HALVES = LANES / 4, MAX_FACTOR = 1024 };

typedef float f2 __attribute__((vector_size(8), aligned(4), may_alias));
typedef f4 Tile[MAX_FACTOR][HALVES][2]; // real and imaginary parts

static uint32_t coarse_count(uint32_t order, uint32_t shift) { return ((order - 1) >> shift) + 1; }

void k_fft_table(const Call *call) {
    PUSH(FftTablePush);
    float *out = (float *)call->buffer[0];
    uint32_t coarse = coarse_count(p->order, p->shift);
    for (uint32_t i = 0; i < coarse + (1u << p->shift); i++) {
        uint32_t e = i < coarse ? i << p->shift : i - coarse;
        out[2 * i] = fft_cos(e, p->order);
        out[2 * i + 1] = -fft_sin(e, p->order);
    }
}

typedef struct Roots {
    const float *coarse, *fine;
    uint32_t shift;
} Roots;

static Roots roots_of(const void *table, uint32_t order, uint32_t shift) {
    const float *coarse = table;
    return (Roots){coarse, coarse + 2 * (size_t)coarse_count(order, shift), shift};
}

INLINE f2 product(f2 a, f2 b) { return (f2){a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]}; }
INLINE f2 conjugate(f2 a) { return (f2){a[0], -a[1]}; }
INLINE f2 turned(f2 a, bool turn) { return turn ? (f2){a[1], a[0]} : a; }

INLINE f2 root(const Roots *roots, uint32_t e) {
    f2 coarse = *(const f2 *)(roots->coarse + 2 * (size_t)(e >> roots->shift));
    if (roots->shift == 0) return coarse;
    return product(coarse, *(const f2 *)(roots->fine + 2 * (size_t)(e & ((1u << roots->shift) - 1))));
}

// ---- fft_pass -------------------------------------------------------------------------------------------------------

typedef struct Pass {
    uint32_t factor, factors, per_row, columns, done, outer_step;
    size_t size;
    bool inverse;
    float scale;
    Roots roots;
    float own[2 * MAX_FACTOR]; // the roots of order `factor`
} Pass;

// Where the lanes of a group begin in the input and the output, and the outer index of each.
typedef struct Group {
    size_t from[LANES], to[LANES];
    uint32_t p[LANES];
    uint32_t lanes;
    bool reads_run, writes_run, has_roots;
} Group;

static Group group_of(const Pass *pass, uint32_t column0) {
    Group g = {.reads_run = true, .writes_run = true};
    g.lanes = min_u32(LANES, pass->columns - column0);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t column = column0 + (lane < g.lanes ? lane : g.lanes - 1);
        uint32_t row = column / pass->per_row, i = column % pass->per_row, q = i % pass->done;
        g.p[lane] = i / pass->done;
        g.from[lane] = row * pass->size + i;
        g.to[lane] = row * pass->size + q + (size_t)pass->done * pass->factor * g.p[lane];
        g.reads_run = g.reads_run && g.from[lane] == g.from[0] + lane;
        g.writes_run = g.writes_run && g.to[lane] == g.to[0] + lane;
        g.has_roots = g.has_roots || g.p[lane] > 0;
    }
    return g;
}

// A group's elements into a tile. Real and imaginary parts change places for the inverse, here and on the way out.
static void gather(Tile to, const Pass *pass, const Group *g, const float *in) {
    const int real = pass->inverse, imaginary = !real;
    for (uint32_t e = 0; e < pass->factor; e++) {
        const size_t at = (size_t)pass->per_row * e;
        for (int half = 0; half < HALVES; half++) {
            f4 a, b;
            if (g->reads_run) {
                a = f4_load(in + 2 * (g->from[4 * half] + at));
                b = f4_load(in + 2 * (g->from[4 * half] + at) + 4);
            } else {
                const size_t *from = g->from + 4 * half;
                f2 x0 = *(const f2 *)(in + 2 * (from[0] + at)), x1 = *(const f2 *)(in + 2 * (from[1] + at));
                f2 x2 = *(const f2 *)(in + 2 * (from[2] + at)), x3 = *(const f2 *)(in + 2 * (from[3] + at));
                a = __builtin_shufflevector(x0, x1, 0, 1, 2, 3);
                b = __builtin_shufflevector(x2, x3, 0, 1, 2, 3);
            }
            to[e][half][real] = __builtin_shufflevector(a, b, 0, 2, 4, 6);
            to[e][half][imaginary] = __builtin_shufflevector(a, b, 1, 3, 5, 7);
        }
    }
}

#define TIMES(re, im, wr, wi) \
    { \
        f4 t_ = (re) * (wr) - (im) * (wi); \
        (im) = (re) * (wi) + (im) * (wr); \
        (re) = t_; \
    }

// The outer roots p * element of a group's lanes.
static void lane_roots(f4 to[HALVES][2], const Pass *pass, const Group *g, uint32_t element) {
    float re[LANES], im[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        f2 w = root(&pass->roots, pass->outer_step * g->p[lane] * element);
        re[lane] = w[0];
        im[lane] = w[1];
    }
    for (int half = 0; half < HALVES; half++) {
        to[half][0] = f4_load(re + 4 * half);
        to[half][1] = f4_load(im + 4 * half);
    }
}

enum { FINE = 16 };

// A transformed tile, times the outer roots and the scale, to the output. The root of an element is that of its multiple of FINE times
// that of the rest.
static void scatter(float *out, Tile from, const Pass *pass, const Group *g) {
    const int real = pass->inverse, imaginary = !real;
    const f4 scale = f4_splat(pass->scale);
    f4 fine[FINE][HALVES][2], coarse[HALVES][2];
    if (g->has_roots)
        for (uint32_t k = 0; k < FINE; k++) {
            lane_roots(fine[k], pass, g, k);
            for (int half = 0; half < HALVES; half++) {
                fine[k][half][0] *= scale;
                fine[k][half][1] *= scale;
            }
        }
    for (uint32_t e = 0; e < pass->factor; e++) {
        const size_t at = (size_t)pass->done * e;
        if (g->has_roots && e % FINE == 0) lane_roots(coarse, pass, g, e);
        for (int half = 0; half < HALVES; half++) {
            f4 re = from[e][half][0], im = from[e][half][1];
            if (g->has_roots) {
                TIMES(re, im, fine[e % FINE][half][0], fine[e % FINE][half][1])
                TIMES(re, im, coarse[half][0], coarse[half][1])
            } else {
                re *= scale;
                im *= scale;
            }
            f4 parts[2];
            parts[real] = re;
            parts[imaginary] = im;
            f4 a = __builtin_shufflevector(parts[0], parts[1], 0, 4, 1, 5);
            f4 b = __builtin_shufflevector(parts[0], parts[1], 2, 6, 3, 7);
            if (g->writes_run) {
                f4_store(out + 2 * (g->to[4 * half] + at), a);
                f4_store(out + 2 * (g->to[4 * half] + at) + 4, b);
                continue;
            }
            const size_t *to = g->to + 4 * half;
            const uint32_t left = g->lanes > 4u * (uint32_t)half ? g->lanes - 4u * (uint32_t)half : 0;
            if (left > 0) *(f2 *)(out + 2 * (to[0] + at)) = __builtin_shufflevector(a, a, 0, 1);
            if (left > 1) *(f2 *)(out + 2 * (to[1] + at)) = __builtin_shufflevector(a, a, 2, 3);
            if (left > 2) *(f2 *)(out + 2 * (to[2] + at)) = __builtin_shufflevector(b, b, 0, 1);
            if (left > 3) *(f2 *)(out + 2 * (to[3] + at)) = __builtin_shufflevector(b, b, 2, 3);
        }
    }
}

// One stage of the transforms of a tile; the radix is a constant at every call.
INLINE void stage(Tile to, Tile from, const Pass *pass, uint32_t radix, uint32_t stride) {
    const uint32_t count = pass->factor / radix, most = count / stride;
    for (uint32_t p = 0; p < most; p++) {
        f4 wr[FFT_MAX], wi[FFT_MAX];
        FFT_UNROLL for (uint32_t k = 1; k < radix; k++) {
            wr[k] = f4_splat(pass->own[2 * (size_t)(stride * p * k)]);
            wi[k] = f4_splat(pass->own[2 * (size_t)(stride * p * k) + 1]);
        }
        for (uint32_t q = 0; q < stride; q++) {
            const uint32_t in = q + stride * p, out = q + stride * radix * p;
            for (int half = 0; half < HALVES; half++) {
                f4 re[FFT_MAX], im[FFT_MAX];
                FFT_UNROLL for (uint32_t j = 0; j < radix; j++) {
                    re[j] = from[in + count * j][half][0];
                    im[j] = from[in + count * j][half][1];
                }
                fft_butterfly(radix, re, im);
                FFT_UNROLL for (uint32_t k = 0; k < radix; k++) {
                    if (k > 0 && most > 1) TIMES(re[k], im[k], wr[k], wi[k])
                    to[out + stride * k][half][0] = re[k];
                    to[out + stride * k][half][1] = im[k];
                }
            }
        }
    }
}

static void transform(const Pass *pass, const Group *g, const float *in, float *out) {
    Tile tiles[2];
    gather(tiles[0], pass, g, in);
    uint32_t stride = 1, i = 0;
    for (; stride < pass->factor; i++) {
        uint32_t radix = (pass->factors >> (4 * i) & 15) + 1;
        f4(*from)[HALVES][2] = tiles[i & 1], (*to)[HALVES][2] = tiles[1 - (i & 1)];
        switch (radix) {
#define STAGE(r) \
    case r: stage(to, from, pass, r, stride); break;
            STAGE(2)
            STAGE(3)
            STAGE(4)
            STAGE(5)
            STAGE(7)
            STAGE(8)
            STAGE(11)
            STAGE(13)
#undef STAGE
            default: return;
        }
        stride *= radix;
    }
    scatter(out, tiles[i & 1], pass, g);
}

static uint32_t group_grain(uint32_t groups, uint32_t factor) { return chunk_grain(groups, factor * LANES * 8, 1); }

uint32_t chunks_fft_pass(const Call *call) {
    PUSH(FftPassPush);
    uint32_t factor = call->spec[2];
    uint32_t groups = (p->rows * (p->size / factor) + LANES - 1) / LANES;
    return chunk_count(groups, group_grain(groups, factor));
}

void k_fft_pass(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(FftPassPush);
    Pass pass = {
        .factor = call->spec[2],
        .factors = call->spec[1],
        .per_row = p->size / call->spec[2],
        .columns = p->rows * (p->size / call->spec[2]),
        .done = p->done,
        .outer_step = p->order / p->size * p->done,
        .size = p->size,
        .inverse = call->spec[5],
        .scale = p->scale,
        .roots = roots_of(call->buffer[1], p->order, p->shift),
    };
    for (uint32_t i = 0; i < pass.factor; i++) {
        f2 w = root(&pass.roots, p->order / pass.factor * i);
        pass.own[2 * i] = w[0];
        pass.own[2 * i + 1] = w[1];
    }
    uint32_t groups = (pass.columns + LANES - 1) / LANES, grain = group_grain(groups, pass.factor);
    for (uint32_t i = chunk * grain, end = chunk_end(last, grain, groups); i < end; i++) {
        Group g = group_of(&pass, i * LANES);
        transform(&pass, &g, (const float *)call->buffer[0], (float *)call->buffer[2]);
    }
}

// ---- fft_map --------------------------------------------------------------------------------------------------------

typedef struct Map {
    const struct FftMapPush *push;
    const float *in, *filter;
    bool inverse;
    Roots roots;
} Map;

INLINE f2 complex_at(const float *x, size_t i) { return *(const f2 *)(x + 2 * i); }

INLINE f2 mapped(const Map *map, uint32_t mode, size_t base, uint32_t k) {
    const float *in = map->in;
    uint32_t n = map->push->n;
    switch (mode) {
        case FFT_WIDEN: return (f2){in[base + k], 0};
        case FFT_HEAD:
        case FFT_REAL_PART: return complex_at(in, base + k);
        case FFT_HERMITIAN: {
            if (k > n / 2) return conjugate(complex_at(in, base + n - k));
            f2 x = complex_at(in, base + k);
            return k == 0 ? (f2){x[0], 0} : x;
        }
        case FFT_SPLIT: {
            uint32_t h = n / 2;
            f2 a = complex_at(in, base + (k == h ? 0 : k)), b = conjugate(complex_at(in, base + (k == 0 ? 0 : h - k)));
            f2 odd = product(a - b, root(&map->roots, k));
            return 0.5f * (a + b + (f2){odd[1], -odd[0]});
        }
        case FFT_MERGE: {
            f2 a = complex_at(in, base + k), b = conjugate(complex_at(in, base + n / 2 - k));
            if (k == 0) a[1] = b[1] = 0;
            f2 odd = product(a - b, conjugate(root(&map->roots, k)));
            return a + b + (f2){-odd[1], odd[0]};
        }
        case FFT_CHIRP_IN:
            if (k >= n) return (f2){0, 0};
            return product(turned(complex_at(in, base + k), map->inverse), root(&map->roots, fft_chirp(k, n)));
        case FFT_FILTER: {
            uint32_t i = min_u32(k, map->push->out_cols - k);
            return i < n ? conjugate(root(&map->roots, fft_chirp(i, n))) : (f2){0, 0};
        }
        case FFT_PRODUCT: return product(complex_at(in, base + k), complex_at(map->filter, k));
        default: return turned(product(complex_at(in, base + k), root(&map->roots, fft_chirp(k, n))), map->inverse);
    }
}

uint32_t chunks_fft_map(const Call *call) {
    PUSH(FftMapPush);
    uint32_t count = p->rows * p->out_cols;
    return chunk_count(count, chunk_grain(count, 8, 1));
}

// Elements first..end-1; the mode is a constant at every call.
INLINE void map_elements(const Map *map, uint32_t mode, uint32_t first, uint32_t end, float *out) {
    const struct FftMapPush *p = map->push;
    uint32_t row = first / p->out_cols, k = first % p->out_cols;
    for (uint32_t i = first; i < end; i++) {
        f2 y = mapped(map, mode, (size_t)row * p->in_cols, k) * p->scale;
        if (mode == FFT_REAL_PART) out[i] = y[0];
        else *(f2 *)(out + 2 * (size_t)i) = y;
        if (++k == p->out_cols) {
            k = 0;
            row++;
        }
    }
}

void k_fft_map(const Call *call, uint32_t chunk, uint32_t last) {
    PUSH(FftMapPush);
    const uint32_t mode = call->spec[1], count = p->rows * p->out_cols, grain = chunk_grain(count, 8, 1);
    const uint32_t first = chunk * grain, end = chunk_end(last, grain, count);
    float *out = (float *)call->buffer[3];
    Map map = {.push = p, .in = (const float *)call->buffer[0], .filter = (const float *)call->buffer[2], .inverse = call->spec[2]};
    if (call->buffer[1]) map.roots = roots_of(call->buffer[1], p->order, p->shift);
    switch (mode) {
#define MODE(m) \
    case m: map_elements(&map, m, first, end, out); break;
        MODE(FFT_WIDEN)
        MODE(FFT_HERMITIAN)
        MODE(FFT_SPLIT)
        MODE(FFT_MERGE)
#undef MODE
        default: map_elements(&map, mode, first, end, out); break;
    }
}
