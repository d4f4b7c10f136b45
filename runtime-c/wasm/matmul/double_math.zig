//! Functions of float64 for the WASM kernels: those of Zig's standard library, under the names that elementwise_wide.h uses.

const std = @import("std");
const math = std.math;

export fn d_exp(x: f64) f64 {
    return @exp(x);
}
export fn d_expm1(x: f64) f64 {
    return math.expm1(x);
}
export fn d_log(x: f64) f64 {
    return @log(x);
}
export fn d_log2(x: f64) f64 {
    return @log2(x);
}
export fn d_log10(x: f64) f64 {
    return @log10(x);
}
export fn d_log1p(x: f64) f64 {
    return math.log1p(x);
}
export fn d_sin(x: f64) f64 {
    return @sin(x);
}
export fn d_cos(x: f64) f64 {
    return @cos(x);
}
export fn d_tan(x: f64) f64 {
    return @tan(x);
}
export fn d_asin(x: f64) f64 {
    return math.asin(x);
}
export fn d_acos(x: f64) f64 {
    return math.acos(x);
}
export fn d_atan(x: f64) f64 {
    return math.atan(x);
}
export fn d_atan2(y: f64, x: f64) f64 {
    return math.atan2(y, x);
}
export fn d_sinh(x: f64) f64 {
    return math.sinh(x);
}
export fn d_cosh(x: f64) f64 {
    return math.cosh(x);
}
export fn d_tanh(x: f64) f64 {
    return math.tanh(x);
}
export fn d_asinh(x: f64) f64 {
    return math.asinh(x);
}
export fn d_acosh(x: f64) f64 {
    return math.acosh(x);
}
export fn d_atanh(x: f64) f64 {
    return math.atanh(x);
}
export fn d_pow(x: f64, y: f64) f64 {
    return math.pow(f64, x, y);
}
export fn d_fmod(x: f64, y: f64) f64 {
    return @rem(x, y);
}

/// The series of Maclaurin below 3, the continued fraction of erfc by Lentz's method above.
export fn d_erf(x: f64) f64 {
    const y = @abs(x);
    if (math.isNan(x)) return x;
    if (y > 6) return math.copysign(@as(f64, 1), x);
    if (y < 3) {
        var term = x;
        var sum = x;
        var n: f64 = 1;
        while (@abs(term) > 1e-17 * @abs(sum)) : (n += 1) {
            term *= -x * x / n;
            sum += term / (2 * n + 1);
        }
        return sum * 2 / @sqrt(@as(f64, math.pi));
    }
    var fraction: f64 = 0;
    var k: f64 = 60;
    while (k > 0) : (k -= 1) fraction = k / 2 / (y + fraction);
    return math.copysign(1 - @exp(-y * y) / @sqrt(@as(f64, math.pi)) / (y + fraction), x);
}

/// Newton's method on erf from the approximation of Giles, "Approximating the erfinv function" (2012).
export fn d_erfinv(x: f64) f64 {
    if (!(@abs(x) < 1)) return if (@abs(x) == 1) math.copysign(math.inf(f64), x) else math.nan(f64);
    const w = -@log((1 - x) * (1 + x));
    var y: f64 = undefined;
    if (w < 5) {
        const t = w - 2.5;
        const c = [_]f64{ 2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941 };
        y = 0;
        for (c) |v| y = y * t + v;
    } else {
        const t = @sqrt(w) - 3;
        const c = [_]f64{ -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682 };
        y = 0;
        for (c) |v| y = y * t + v;
    }
    y *= x;
    for (0..2) |_| {
        const e = (d_erf(y) - x) / (2 / @sqrt(@as(f64, math.pi)) * @exp(-y * y));
        y -= e / (1 + y * e);
    }
    return y;
}
