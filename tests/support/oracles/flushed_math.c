// Functions of shaders/include/math/math.h and small_float.h on a processor that takes subnormal floats for 0, as GPUs may, in whatever computes with
// floats; their bits stay. To be compiled without optimisation: compilers make comparisons of floats of those of bits.

#include <stdint.h>

// Of other functions of small_float.h.
float bf16_value(uint32_t bits);
uint32_t bf16_bits(float x);
float f16_value(uint32_t bits);
uint32_t f16_bits(float x);

#include "math/small_float.h"

#define EXPORT __attribute__((visibility("default")))

#ifdef __x86_64__
#define FLUSHING (1u << 15 | 1u << 6) // results, operands
static uint64_t control(void) { return __builtin_ia32_stmxcsr(); }
static void set_control(uint64_t bits) { __builtin_ia32_ldmxcsr((unsigned)bits); }
#else
#define FLUSHING (1u << 24)
static uint64_t control(void) {
    uint64_t bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
static void set_control(uint64_t bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits)); }
#endif

static float multiply(float a, float b) { return a * b; }
static float log_of(float a, float b) { return (void)b, m_log(a); }
static float log2_of(float a, float b) { return (void)b, m_log2(a); }
static float log10_of(float a, float b) { return (void)b, m_log10(a); }

static float equal(float a, float b) { return m_equal(a, b); }
static float less(float a, float b) { return m_less(a, b); }
static float less_equal(float a, float b) { return m_less_equal(a, b); }
static float sign(float a, float b) { return (void)b, m_sign(a); }
static float ceil_of(float a, float b) { return (void)b, m_ceil(m_beside_zero(a)); }
static float floor_of(float a, float b) { return (void)b, m_floor(m_beside_zero(a)); }
static float negative(float a, float b) { return (void)b, m_negative(a); }
static float log_above(float a, float b) { return (void)b, (float)(m_nonzero(a) ? ceil_log2(m_abs(a)) : 0); }

static float (*const functions[])(float, float) = {
    multiply, log_of, log2_of,   log10_of,  m_pow,    m_atan2,         m_remainder, equal,   less,
    less_equal, sign, m_maximum, m_minimum, negative, scaled_by_power, log_above,   ceil_of, floor_of,
};

EXPORT void flushed(uint32_t function, const float *a, const float *b, float *out, uint32_t count) {
    uint64_t before = control();
    set_control(before | FLUSHING);
    for (uint32_t i = 0; i < count; i++) out[i] = functions[function](a[i], b[i]);
    set_control(before);
}
