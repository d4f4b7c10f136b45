// Fourier transforms in GLSL and C: roots of unity and butterflies.
//
// A butterfly replaces re[0..r-1], im[0..r-1] by their forward transform, in order. Elements are FFT_REAL: a float in GLSL, vectors of
// columns in C.

#ifndef VKMX_FFT_H
#define VKMX_FFT_H
#include "int64.h"

#define FFT_MAX 16 // largest radix

// cos(2 pi e / order), accurate to a rounding: the angle is reduced to an octant in whole numbers.
FN float fft_octant(uint octant, float r, float mirrored) {
    float y = (octant & 1u) != 0u   ? ((octant + 1u) & 2u) != 0u ? m_sin_unit(mirrored) : m_cos_unit(mirrored)
              : (octant & 2u) != 0u ? m_sin_unit(r)
                                    : m_cos_unit(r);
    return octant >= 2u && octant <= 5u ? -y : y;
}

FN float fft_wave(uint e, uint order, uint turn) {
    uint64_t eighths = U64(e) * U64(8);
    uint octant = UINT(eighths / U64(order));
    uint rest = UINT(eighths - U64(octant) * U64(order));
    float scale = 0.785398163f / FLOAT(order);
    return fft_octant((octant + turn) & 7u, FLOAT(rest) * scale, FLOAT(order - rest) * scale);
}
FN float fft_cos(uint e, uint order) { return fft_wave(e, order, 0u); }
FN float fft_sin(uint e, uint order) { return fft_wave(e, order, 6u); }

// k^2 mod 2n: the chirp's angle is -pi k^2 / n.
FN uint fft_chirp(uint k, uint n) { return UINT(U64(k) * U64(k) % (U64(n) * U64(2))); }

#ifdef GL_core_profile
#define FFT_REAL float
#define FFT_ARRAYS inout float re[FFT_MAX], inout float im[FFT_MAX]
#define FFT_FN
#define FFT_LIST(n) float[n](
#define FFT_END )
#define FFT_UNROLL [[unroll]]
#else
#define FFT_ARRAYS FFT_REAL *re, FFT_REAL *im
#define FFT_FN static inline __attribute__((always_inline))
#define FFT_LIST(n) {
#define FFT_END }
#define FFT_UNROLL _Pragma("clang loop unroll(full)")
#endif

// cos and sin of 2 pi i / r for r = 3, 5, 7, 11, 13.
#ifdef GL_core_profile
const float FFT_COS[39] =
#else
static const float
    FFT_COS[39] =
#endif
    FFT_LIST(39) 1.0f,
            -0.5f, -0.5f, 1.0f, 0.309016994f, -0.809016994f, -0.809016994f, 0.309016994f, 1.0f, 0.623489802f, -0.222520934f, -0.900968868f,
            -0.900968868f, -0.222520934f, 0.623489802f, 1.0f, 0.841253533f, 0.415415013f, -0.142314838f, -0.654860734f, -0.959492974f,
            -0.959492974f, -0.654860734f, -0.142314838f, 0.415415013f, 0.841253533f, 1.0f, 0.885456026f, 0.568064747f, 0.12053668f,
            -0.354604887f, -0.748510748f, -0.970941817f, -0.970941817f, -0.748510748f, -0.354604887f, 0.12053668f, 0.568064747f,
            0.885456026f FFT_END;
#ifdef GL_core_profile
const float FFT_SIN[39] =
#else
static const float
    FFT_SIN[39] =
#endif
    FFT_LIST(39) 0.0f,
            0.866025404f, -0.866025404f, 0.0f, 0.951056516f, 0.587785252f, -0.587785252f, -0.951056516f, 0.0f, 0.781831482f, 0.974927912f,
            0.433883739f, -0.433883739f, -0.974927912f, -0.781831482f, 0.0f, 0.540640817f, 0.909631995f, 0.989821442f, 0.755749574f,
            0.281732557f, -0.281732557f, -0.755749574f, -0.989821442f, -0.909631995f, -0.540640817f, 0.0f, 0.464723172f, 0.822983866f,
            0.992708874f, 0.935016243f, 0.663122658f, 0.239315664f, -0.239315664f, -0.663122658f, -0.935016243f, -0.992708874f,
            -0.822983866f, -0.464723172f FFT_END;

// Four elements in place, y0…y3 where a…d were.
#define FFT_4(a, b, c, d) \
    { \
        FFT_REAL t0 = re[a] + re[c], u0 = im[a] + im[c], t1 = re[a] - re[c], u1 = im[a] - im[c]; \
        FFT_REAL t2 = re[b] + re[d], u2 = im[b] + im[d], t3 = re[b] - re[d], u3 = im[b] - im[d]; \
        re[a] = t0 + t2; \
        im[a] = u0 + u2; \
        re[c] = t0 - t2; \
        im[c] = u0 - u2; \
        re[b] = t1 + u3; \
        im[b] = u1 - t3; \
        re[d] = t1 - u3; \
        im[d] = u1 + t3; \
    }

#define FFT_TURN(a, c, s) \
    { \
        FFT_REAL t = re[a] * (c) + im[a] * (s); \
        im[a] = im[a] * (c) - re[a] * (s); \
        re[a] = t; \
    }

#define FFT_SWAP(a, b) \
    { \
        FFT_REAL t = re[a], u = im[a]; \
        re[a] = re[b]; \
        im[a] = im[b]; \
        re[b] = t; \
        im[b] = u; \
    }

FFT_FN void fft_2(FFT_ARRAYS) {
    FFT_REAL t = re[1], u = im[1];
    re[1] = re[0] - t;
    im[1] = im[0] - u;
    re[0] = re[0] + t;
    im[0] = im[0] + u;
}

FFT_FN void fft_4(FFT_ARRAYS){FFT_4(0, 1, 2, 3)}

FFT_FN void fft_8(FFT_ARRAYS) {
    FFT_REAL yr[8], yi[8];
    FFT_4(0, 2, 4, 6)
    FFT_4(1, 3, 5, 7)
    FFT_TURN(3, 0.707106781f, 0.707106781f)
    FFT_TURN(5, 0.0f, 1.0f)
    FFT_TURN(7, -0.707106781f, 0.707106781f)
    FFT_UNROLL for (int k = 0; k < 4; k++) {
        yr[k] = re[2 * k] + re[2 * k + 1];
        yi[k] = im[2 * k] + im[2 * k + 1];
        yr[k + 4] = re[2 * k] - re[2 * k + 1];
        yi[k + 4] = im[2 * k] - im[2 * k + 1];
    }
    FFT_UNROLL for (int k = 0; k < 8; k++) {
        re[k] = yr[k];
        im[k] = yi[k];
    }
}

FFT_FN void fft_16(FFT_ARRAYS){
    FFT_4(0, 4, 8, 12) FFT_4(1, 5, 9, 13) FFT_4(2, 6, 10, 14) FFT_4(3, 7, 11, 15) FFT_TURN(5, 0.923879533f, 0.382683432f)
        FFT_TURN(6, 0.707106781f, 0.707106781f) FFT_TURN(7, 0.382683432f, 0.923879533f) FFT_TURN(9, 0.707106781f, 0.707106781f)
            FFT_TURN(10, 0.0f, 1.0f) FFT_TURN(11, -0.707106781f, 0.707106781f) FFT_TURN(13, 0.382683432f, 0.923879533f)
                FFT_TURN(14, -0.707106781f, 0.707106781f) FFT_TURN(15, -0.923879533f, -0.382683432f) FFT_4(0, 1, 2, 3) FFT_4(4, 5, 6, 7)
                    FFT_4(8, 9, 10, 11) FFT_4(12, 13, 14, 15) FFT_SWAP(1, 4) FFT_SWAP(2, 8) FFT_SWAP(3, 12) FFT_SWAP(6, 9) FFT_SWAP(7, 13)
                        FFT_SWAP(11, 14)}
// An odd prime: sums and differences of the elements j and r - j; `at` is where its row of FFT_COS begins.
#define FFT_ODD(name, r, at) \
    FFT_FN void name(FFT_ARRAYS) { \
        FFT_REAL yr[r], yi[r]; \
        yr[0] = re[0]; \
        yi[0] = im[0]; \
        FFT_UNROLL for (int j = 1; j < r; j++) { \
            yr[0] = yr[0] + re[j]; \
            yi[0] = yi[0] + im[j]; \
        } \
        FFT_UNROLL for (int k = 1; k <= r / 2; k++) { \
            float c1 = FFT_COS[at + k], s1 = FFT_SIN[at + k]; \
            FFT_REAL ar = re[0] + (re[1] + re[r - 1]) * c1, ai = im[0] + (im[1] + im[r - 1]) * c1; \
            FFT_REAL br = (re[1] - re[r - 1]) * s1, bi = (im[1] - im[r - 1]) * s1; \
            FFT_UNROLL for (int j = 2; j <= r / 2; j++) { \
                float c = FFT_COS[at + j * k % r], s = FFT_SIN[at + j * k % r]; \
                ar = ar + (re[j] + re[r - j]) * c; \
                ai = ai + (im[j] + im[r - j]) * c; \
                br = br + (re[j] - re[r - j]) * s; \
                bi = bi + (im[j] - im[r - j]) * s; \
            } \
            yr[k] = ar + bi; \
            yi[k] = ai - br; \
            yr[r - k] = ar - bi; \
            yi[r - k] = ai + br; \
        } \
        FFT_UNROLL for (int k = 0; k < r; k++) { \
            re[k] = yr[k]; \
            im[k] = yi[k]; \
        } \
    }
FFT_ODD(fft_3, 3, 0) FFT_ODD(fft_5, 5, 3) FFT_ODD(fft_7, 7, 8) FFT_ODD(fft_11, 11, 15) FFT_ODD(fft_13, 13, 26)

    FFT_FN void fft_butterfly(uint radix, FFT_ARRAYS) {
    if (radix == 2u) fft_2(re, im);
    else if (radix == 3u) fft_3(re, im);
    else if (radix == 4u) fft_4(re, im);
    else if (radix == 5u) fft_5(re, im);
    else if (radix == 7u) fft_7(re, im);
    else if (radix == 8u) fft_8(re, im);
    else if (radix == 11u) fft_11(re, im);
    else if (radix == 13u) fft_13(re, im);
    else if (radix == 16u) fft_16(re, im);
}

#endif
