// Convolution, channels last. Patches of the input are gathered into the packed blocks of the dense core, a group of
// channels at a time. If groups are small, every output is a separate sum. See ConvPush.

#include "matmul/gemm.h"
#include "wide.h"

// Images, axes and strides of a call for one group.
typedef struct Patches {
    const struct ConvPush *p;
    const uint8_t *in; // channel 0 of the group
    uint32_t dtype;
} Patches;

// The place of an output along the axes.
typedef struct Place {
    uint32_t image;
    int32_t corner[3]; // of tap 0 in the dilated input
} Place;

INLINE Place place_of(const struct ConvPush *p, uint32_t row) {
    Place place;
    for (int d = 2; d >= 0; d--) {
        place.corner[d] = (int32_t)(row % p->out_shape[d] * p->stride[d]) - p->padding[d];
        row /= p->out_shape[d];
    }
    place.image = row;
    return place;
}

// The position that a tap reads, counted in (image, axes); -1 if it is padding.
INLINE ptrdiff_t tap_position(const struct ConvPush *p, const Place *place, uint32_t tap) {
    ptrdiff_t position = 0, factor = 1;
    for (int d = 2; d >= 0; d--) {
        int32_t at = place->corner[d] + (int32_t)(tap % p->kernel[d] * p->kernel_dilation[d]), dilation = (int32_t)p->input_dilation[d];
        tap /= p->kernel[d];
        if (at < 0) return -1;
        if (dilation > 1) {
            if (at % dilation) return -1;
            at /= dilation;
        }
        if (at >= (int32_t)p->in_shape[d]) return -1;
        position += at * factor;
        factor *= p->in_shape[d];
    }
    return position + (ptrdiff_t)place->image * factor;
}

static void pack_patches(const void *matrix, uint32_t row, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    const Patches *x = matrix;
    const struct ConvPush *p = x->p;
    const ptrdiff_t bytes = DTYPE_BYTES(x->dtype), pixel = (ptrdiff_t)p->groups * p->channels * bytes;
    for (uint32_t i = 0; i < TILE_M; i++) {
        float line[BLOCK_K];
        Place place = i < count ? place_of(p, row + i) : (Place){0};
        for (uint32_t k = 0; k < depth;) {
            uint32_t tap = (first + k) / p->channels, channel = (first + k) % p->channels;
            uint32_t run = min_u32(p->channels - channel, depth - k);
            ptrdiff_t position = i < count ? tap_position(p, &place, tap) : -1;
            if (position < 0) __builtin_memset(line + k, 0, run * sizeof(float));
            else load_run(line + k, x->in + position * pixel, channel, run, x->dtype);
            k += run;
        }
        for (uint32_t k = 0; k < depth; k++) to[k * TILE_M + i] = line[k];
    }
}

// Taps back to front where weights are flipped.
typedef struct Filters {
    Strided w;
    uint32_t channels, taps;
} Filters;

static void pack_filters(const void *matrix, uint32_t column, uint32_t count, uint32_t first, uint32_t depth, float *to) {
    const Filters *f = matrix;
    if (f->taps == 0) {
        pack_strided(&f->w, column, count, first, depth, to, TILE_N);
        return;
    }
    for (uint32_t k = 0; k < depth;) {
        uint32_t tap = (first + k) / f->channels, channel = (first + k) % f->channels;
        uint32_t run = min_u32(f->channels - channel, depth - k);
        pack_strided(&f->w, column, count, (f->taps - 1 - tap) * f->channels + channel, run, to + k * TILE_N, TILE_N);
        k += run;
    }
}

typedef struct ConvGemm {
    Patches patches;
    Filters filters;
    Gemm g;
} ConvGemm;

static void conv_gemm(ConvGemm *c, const Call *call, uint32_t group) {
    PUSH(ConvPush);
    uint32_t taps = p->kernel[0] * p->kernel[1] * p->kernel[2], k = taps * p->channels;
    c->patches = (Patches){p, call->buffer[0] + (size_t)group * p->channels * DTYPE_BYTES(call->spec[1]), call->spec[1]};
    const uint8_t *w = call->buffer[1] + (size_t)group * p->filters * k * DTYPE_BYTES(call->spec[2]);
    c->filters = (Filters){{w, (int32_t)k, 1, call->spec[2]}, p->channels, call->spec[10] ? taps : 0};
    c->g = (Gemm){
        .m = p->images * p->out_shape[0] * p->out_shape[1] * p->out_shape[2],
        .n = p->filters,
        .k = k,
        .pack_a = pack_patches,
        .pack_b = pack_filters,
        .a = &c->patches,
        .b = &c->filters,
        .out = call->buffer[2] + (size_t)group * p->filters * DTYPE_BYTES(call->spec[3]),
        .out_stride = (size_t)p->groups * p->filters,
        .dtype_out = call->spec[3],
    };
}

uint32_t chunks_conv(const Call *call) {
    PUSH(ConvPush);
    ConvGemm c;
    conv_gemm(&c, call, 0);
    return p->groups * gemm_blocks(&c.g);
}

void k_conv(const Call *call, uint32_t first, uint32_t last) {
    for (uint32_t chunk = first; chunk < last; chunk++) {
        ConvGemm c;
        conv_gemm(&c, call, 0);
        uint32_t blocks = gemm_blocks(&c.g);
        conv_gemm(&c, call, chunk / blocks);
        gemm_block(&c.g, chunk % blocks);
    }
}

// ---- small groups -----------------------------------------------------------------------------------------------------

// Filters that are summed beside each other.
enum { BESIDE = 32 };

static uint32_t direct_grain(const struct ConvPush *p) {
    uint32_t taps = p->kernel[0] * p->kernel[1] * p->kernel[2];
    return chunk_grain(p->images * p->out_shape[0] * p->out_shape[1] * p->out_shape[2], 2 * taps * p->channels * p->groups * p->filters, 1);
}

uint32_t chunks_conv_direct(const Call *call) {
    PUSH(ConvPush);
    return chunk_count(p->images * p->out_shape[0] * p->out_shape[1] * p->out_shape[2], direct_grain(p));
}

// Outputs of float64: sums by themselves whatever the size of groups.
static void direct_doubles(const Call *call, uint32_t from, uint32_t end) {
    PUSH(ConvPush);
    const uint32_t taps = p->kernel[0] * p->kernel[1] * p->kernel[2], all = p->groups * p->filters;
    const double *in = (const double *)call->buffer[0], *w = (const double *)call->buffer[1];
    double *out = (double *)call->buffer[2] + (size_t)from * all;
    for (uint32_t row = from; row < end; row++, out += all) {
        Place place = place_of(p, row);
        for (uint32_t f = 0; f < all; f++) out[f] = 0;
        for (uint32_t tap = 0; tap < taps; tap++) {
            ptrdiff_t position = tap_position(p, &place, tap);
            if (position < 0) continue;
            const double *pixel = in + (size_t)position * p->groups * p->channels;
            const double *weight = w + (size_t)(call->spec[4] ? taps - 1 - tap : tap) * p->channels;
            for (uint32_t f = 0; f < all; f++, weight += (size_t)taps * p->channels) {
                const double *x = pixel + (size_t)(f / p->filters) * p->channels;
                double sum = 0;
                for (uint32_t c = 0; c < p->channels; c++) sum += x[c] * weight[c];
                out[f] += sum;
            }
        }
    }
}

void k_conv_direct(const Call *call, uint32_t first, uint32_t last) {
    PUSH(ConvPush);
    if (call->spec[3] == DTYPE_F64) {
        const uint32_t rows = p->images * p->out_shape[0] * p->out_shape[1] * p->out_shape[2], grain = direct_grain(p);
        direct_doubles(call, first * grain, chunk_end(last, grain, rows));
        return;
    }
    const uint32_t dtype_in = call->spec[1], dtype_w = call->spec[2], flip = call->spec[4];
    const uint32_t taps = p->kernel[0] * p->kernel[1] * p->kernel[2], k = taps * p->channels, all = p->groups * p->filters;
    const uint32_t rows = p->images * p->out_shape[0] * p->out_shape[1] * p->out_shape[2], grain = direct_grain(p);
    const bool depthwise = p->filters == 1 && p->channels == 1;
    const uint8_t *in = call->buffer[0], *w = call->buffer[1];
    // The weights of filters beside each other lie k apart: those of a tap are collected for all rows of the chunk.
    enum { KEPT = 64 };
    float kept[KEPT * BESIDE];
    for (uint32_t filter0 = 0; filter0 < all; filter0 += BESIDE) {
        uint32_t beside = min_u32(BESIDE, all - filter0);
        for (uint32_t j = 0; depthwise && taps <= KEPT && j < beside; j++) {
            for (uint32_t t = 0; t < taps; t++) {
                kept[t * BESIDE + j] = load_float(w, (size_t)(filter0 + j) * k + (flip ? taps - 1 - t : t), dtype_w);
            }
        }
        for (uint32_t row = first * grain, end = chunk_end(last, grain, rows); row < end; row++) {
            Place place = place_of(p, row);
            float sums[BESIDE] = {0}, values[BESIDE];
            for (uint32_t tap = 0; tap < taps; tap++) {
                ptrdiff_t position = tap_position(p, &place, tap);
                if (position < 0) continue;
                size_t pixel = (size_t)position * p->groups * p->channels, at = (flip ? taps - 1 - tap : tap) * p->channels;
                if (depthwise && taps <= KEPT) {
                    load_run(values, in, pixel + filter0, beside, dtype_in);
                    for (uint32_t j = 0; j < beside; j++) sums[j] += values[j] * kept[tap * BESIDE + j];
                    continue;
                }
                for (uint32_t j = 0; j < beside; j++) {
                    size_t from = pixel + (filter0 + j) / p->filters * p->channels, weight = (size_t)(filter0 + j) * k + at;
                    for (uint32_t c = 0; c < p->channels; c++) {
                        sums[j] += load_float(in, from + c, dtype_in) * load_float(w, weight + c, dtype_w);
                    }
                }
            }
            store_floats(call->buffer[2], (size_t)row * all + filter0, sums, beside, call->spec[3]);
        }
    }
}
