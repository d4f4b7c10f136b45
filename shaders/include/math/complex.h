// Complex numbers of two floats, in GLSL and C: what elementwise_wide.h and the kernels of complex64 compute with.
//
// Textbook formulas over math.h; magnitudes are scaled, so that they neither overflow nor vanish where the result does not.

#ifndef VKMX_COMPLEX_H
#define VKMX_COMPLEX_H
#include "math.h"

#ifdef GL_core_profile
struct Complex {
    float re, im;
};
#define CX(re, im) Complex(re, im)
#else
typedef struct Complex {
    float re, im;
} Complex;
#define CX(re, im) ((Complex){re, im})
#endif

FN Complex c_add(Complex a, Complex b) { return CX(a.re + b.re, a.im + b.im); }
FN Complex c_subtract(Complex a, Complex b) { return CX(a.re - b.re, a.im - b.im); }
FN Complex c_multiply(Complex a, Complex b) { return CX(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
FN Complex c_scale(Complex a, float x) { return CX(a.re * x, a.im * x); }
FN Complex c_negative(Complex a) { return CX(-a.re, -a.im); }
FN Complex c_conjugate(Complex a) { return CX(a.re, -a.im); }
FN Complex c_turn(Complex a) { return CX(-a.im, a.re); }      // i a
FN Complex c_turn_back(Complex a) { return CX(a.im, -a.re); } // -i a

// The power of two below |x|, as a factor that takes it to 1.
FN float c_unit(float x) {
    int e = INT(BITS(x) >> 23 & 0xffu);
    e = e < 1 ? 1 : (e > 253 ? 253 : e);
    return FROM_BITS(UINT(254 - e) << 23);
}

FN float c_abs(Complex a) {
    float x = m_abs(a.re), y = m_abs(a.im), most = x > y ? x : y;
    if (m_isinf(x) || m_isinf(y)) return M_INF;
    if (most == 0.0f) return x + y; // NaN stays
    float s = c_unit(most);
    x *= s;
    y *= s;
    return m_sqrt(x * x + y * y) / s;
}

FN Complex c_divide(Complex a, Complex b) {
    float x = m_abs(b.re), y = m_abs(b.im), s = c_unit(x > y ? x : y);
    // By 0 infinite, and by an infinite number 0, as in C and NumPy.
    if (x == 0.0f && y == 0.0f) return c_scale(a, m_copysign(M_INF, b.re));
    if (m_isinf(x) || m_isinf(y)) {
        b = CX(m_copysign(m_isinf(x) ? 1.0f : 0.0f, b.re), m_copysign(m_isinf(y) ? 1.0f : 0.0f, b.im));
        a = c_scale(a, 0.0f);
        s = 1.0f;
    }
    Complex d = c_scale(b, s);
    float n = d.re * d.re + d.im * d.im;
    Complex p = c_multiply(a, c_conjugate(d));
    return CX(p.re / n * s, p.im / n * s);
}

FN float c_angle(Complex a) { return m_atan2(a.im, a.re); }
FN bool c_nonzero(Complex a) { return m_nonzero(a.re) || m_nonzero(a.im); }
FN bool c_isnan(Complex a) { return m_isnan(a.re) || m_isnan(a.im); }
FN bool c_isinf(Complex a) { return m_isinf(a.re) || m_isinf(a.im); }
FN bool c_equal(Complex a, Complex b) { return a.re == b.re && a.im == b.im; }
FN bool c_less(Complex a, Complex b) { return a.re < b.re || (a.re == b.re && a.im < b.im); }
FN Complex c_maximum(Complex a, Complex b) {
    if (c_isnan(a)) return a;
    if (c_isnan(b)) return b;
    return c_less(a, b) ? b : a;
}
FN Complex c_minimum(Complex a, Complex b) {
    if (c_isnan(a)) return a;
    if (c_isnan(b)) return b;
    return c_less(b, a) ? b : a;
}

FN Complex c_polar(float r, float angle) { return CX(r * m_cos(angle), r * m_sin(angle)); }
FN Complex c_exp(Complex a) {
    float r = m_exp(a.re);
    return a.im == 0.0f ? CX(r, a.im) : c_polar(r, a.im);
}
FN Complex c_log(Complex a) {
    float x = m_abs(a.re), y = m_abs(a.im), most = x > y ? x : y, least = x > y ? y : x;
    // Near 1 the logarithm of the magnitude is that of 1 + (most - 1)(most + 1) + least².
    float small = m_log1p((most - 1.0f) * (most + 1.0f) + least * least) * 0.5f;
    float re = most > 0.5f && most < 2.0f ? small : m_log(c_abs(a));
    return CX(re, c_angle(a));
}
FN Complex c_sqrt(Complex a) {
    float r = c_abs(a);
    if (m_isinf(a.im)) return CX(M_INF, a.im);
    if (r == 0.0f) return CX(0.0f, a.im);
    // Halves are taken before they are added, so that nothing overflows.
    float half_sum = 0.5f * r + 0.5f * m_abs(a.re);
    float t = m_sqrt(half_sum), u = 0.5f * a.im / t;
    return a.re >= 0.0f ? CX(t, u) : CX(m_abs(u), m_copysign(t, a.im));
}
FN Complex c_log1p(Complex a) {
    float re = 0.5f * m_log1p(a.re * (2.0f + a.re) + a.im * a.im);
    return CX(m_abs(a.re) < 0.5f && m_abs(a.im) < 0.5f ? re : c_log(CX(1.0f + a.re, a.im)).re, m_atan2(a.im, 1.0f + a.re));
}
FN Complex c_power(Complex a, Complex b) {
    if (!c_nonzero(b)) return CX(1.0f, 0.0f);
    if (!c_nonzero(a)) return b.re > 0.0f ? CX(0.0f, 0.0f) : CX(M_NAN, M_NAN);
    return c_exp(c_multiply(b, c_log(a)));
}
FN Complex c_sinh(Complex a) { return CX(m_sinh(a.re) * m_cos(a.im), m_cosh(a.re) * m_sin(a.im)); }
FN Complex c_cosh(Complex a) { return CX(m_cosh(a.re) * m_cos(a.im), m_sinh(a.re) * m_sin(a.im)); }
FN Complex c_tanh(Complex a) {
    if (m_abs(a.re) > 20.0f) return CX(m_copysign(1.0f, a.re), 0.0f * m_sin(2.0f * a.im));
    float t = m_tan(a.im), s = m_sinh(a.re), c = m_cosh(a.re), beta = 1.0f + t * t, d = 1.0f + beta * s * s;
    return CX(beta * c * s / d, t / d);
}
FN Complex c_sin(Complex a) { return c_turn_back(c_sinh(c_turn(a))); }
FN Complex c_cos(Complex a) { return c_cosh(c_turn(a)); }
FN Complex c_tan(Complex a) { return c_turn_back(c_tanh(c_turn(a))); }
// Kahan, "Branch cuts for complex elementary functions" (1987): the products of roots keep the cuts on their sides.
FN Complex c_arcsin(Complex a) {
    Complex p = c_sqrt(CX(1.0f - a.re, -a.im)), q = c_sqrt(CX(1.0f + a.re, a.im));
    return CX(m_atan2(a.re, p.re * q.re - p.im * q.im), m_asinh(p.re * q.im - p.im * q.re));
}
FN Complex c_arccos(Complex a) {
    Complex p = c_sqrt(CX(1.0f - a.re, -a.im)), q = c_sqrt(CX(1.0f + a.re, a.im));
    return CX(2.0f * m_atan2(p.re, q.re), m_asinh(q.re * p.im - q.im * p.re));
}
FN Complex c_arctanh(Complex a) {
    float y = a.im * a.im, m = 1.0f - a.re, p = 1.0f + a.re;
    float re = 0.25f * (m_log1p(4.0f * a.re / (m * m + y)));
    return CX(re, 0.5f * m_atan2(2.0f * a.im, m * p - y));
}
FN Complex c_arctan(Complex a) { return c_turn_back(c_arctanh(c_turn(a))); }
FN Complex c_arcsinh(Complex a) { return c_turn_back(c_arcsin(c_turn(a))); }
FN Complex c_arccosh(Complex a) {
    Complex p = c_sqrt(CX(a.re - 1.0f, a.im)), q = c_sqrt(CX(a.re + 1.0f, a.im));
    return CX(m_asinh(p.re * q.re + p.im * q.im), 2.0f * m_atan2(p.im, q.re));
}
FN Complex c_sign(Complex a) {
    float r = c_abs(a);
    return r == 0.0f ? CX(0.0f, 0.0f) : CX(a.re / r, a.im / r);
}
FN Complex c_logaddexp(Complex a, Complex b) {
    Complex most = c_less(a, b) ? b : a, least = c_less(a, b) ? a : b;
    return c_add(most, c_log1p(c_exp(c_subtract(least, most))));
}

#endif
