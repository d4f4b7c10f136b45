/**
 * More of what random programs are made of: convolutions, transforms, scans, gathers along an axis, 8-byte dtypes on the way, and
 * other streams.
 */

import * as mx from "../../../mod.ts";
import { type Draw, isFloat } from "../../ops/cases/draw.ts";
import { build, map, ravel, reduce, rows, sum } from "./oracle.ts";
import { BASIC_OPS, most, order, over, type Parameters, type ProgramOp, type Value, withAxis } from "./program_ops.ts";

const float = (v: Value): boolean => isFloat(v.dtype);
const signed = (v: Value): boolean => v.dtype !== "bool";

/** A stream of its own for each device. */
const STREAMS = new Map<string, mx.Stream>();

function otherStream(): mx.Stream {
  const device = mx.defaultDevice();
  const stream = STREAMS.get(`${device}`) ?? mx.newStream(device);
  STREAMS.set(`${device}`, stream);
  return stream;
}

/** The lines of an axis with so many elements at most, as axis and taps of a kernel. */
const filter = (d: Draw, v: Value): Parameters | undefined => {
  if (v.data.length === 0 || v.data.length > 400) return undefined;
  return [Array.from({ length: d.int(1, 5) }, () => d.pick([0.5, -1, 0.25, 1])), d.int(1, 2)];
};

/** Convolutions of all elements in a line, of one channel. */
const CONVOLUTIONS: Record<string, ProgramOp> = {
  conv1d: over(
    filter,
    (mx, x, [taps, stride]) => {
      const weight = mx.array(taps, x.dtype).reshape(1, taps.length, 1);
      return mx.conv1d(x.reshape(1, -1, 1), weight, stride, taps.length - 1).flatten();
    },
    (x, [taps, stride]) => {
      const reach = taps.length - 1;
      const count = Math.floor((x.data.length + 2 * reach - taps.length) / stride) + 1;
      return build(
        [count],
        ([at]) => sum(taps.map((w: number, i: number) => w * (x.data[at * stride + i - reach] ?? 0))),
      );
    },
    { test: (v) => float(v) && most(v) < 8, exact: false },
  ),
  convolve: over(
    filter,
    (mx, x, [taps]) => mx.convolve(x.flatten(), mx.array(taps, x.dtype)),
    (x, [taps]) =>
      build(
        [x.data.length + taps.length - 1],
        ([at]) => sum(taps.map((w: number, i: number) => w * (x.data[at - i] ?? 0))),
      ),
    { test: (v) => float(v) && most(v) < 8, exact: false },
  ),
};

/** Sums of a row with cosines or sines. */
function spectrum(part: "real" | "imag"): ProgramOp {
  return over(
    (d, v) => v.data.length > 1500 ? undefined : withAxis(d, v),
    (mx, x, [axis]) => mx[part](mx.fft.fft(x, null, axis)),
    (x, [axis]) =>
      rows(x, axis, (v) =>
        v.map((_, k) =>
          sum(v.map((q, j) => {
            const angle = -2 * Math.PI * ((j * k) % v.length) / v.length;
            return q * (part === "real" ? Math.cos(angle) : Math.sin(angle));
          }))
        )),
    { test: (v) => v.dtype === "float32" && most(v) < 3, exact: false },
  );
}

const WIDE: Record<string, ProgramOp> = {
  int64: over(
    () => [],
    (mx, x) => {
      const wide = mx.multiply(x.astype(mx.int64), 2n ** 33n);
      return mx.floorDivide(mx.add(wide, x.astype(mx.int64)), 2n ** 32n).astype(mx.int32);
    },
    (x) => map((v) => Math.floor(v * (2 ** 33 + 1) / 2 ** 32), x),
    { test: (v) => v.dtype === "int32" && v.exact },
  ),
  complex: over(
    (d) => [d.pick([[0.6, 0.8], [0, 1], [-1, 0.5]])],
    (mx, x, [[re, im]]) =>
      mx.imag(mx.multiply(mx.multiply(x.astype(mx.complex64), mx.complex(re, im)), mx.complex(0, 1))),
    (x, [[re]]) => map((v) => v * re, x),
    { test: (v) => v.dtype === "float32", exact: false },
  ),
};

const LINES: Record<string, ProgramOp> = {
  cummax: over(
    withAxis,
    (mx, x, [axis]) => mx.cummax(x, axis),
    (x, [axis]) => rows(x, axis, (v) => v.map((_, i) => Math.max(...v.slice(0, i + 1)))),
    { test: signed },
  ),
  logcumsumexp: over(
    withAxis,
    (mx, x, [axis]) => mx.logcumsumexp(x, axis),
    (x, [axis]) => rows(x, axis, (v) => v.map((_, i) => Math.log(sum(v.slice(0, i + 1).map(Math.exp))))),
    { test: (v) => v.dtype === "float32" && most(v) < 9, exact: false },
  ),
  variance: over(
    withAxis,
    (mx, x, [axis]) => mx.variance(x, axis),
    (x, [axis]) =>
      reduce(x, [axis], false, (v) => {
        const mean = sum(v) / v.length;
        return sum(v.map((q) => (q - mean) ** 2)) / v.length;
      }),
    { test: (v) => v.dtype === "float32" && most(v) < 6, exact: false },
  ),
  diff: over(
    (d, v) => withAxis(d, v),
    (mx, x, [axis]) => mx.diff(x, 1, axis),
    (x, [axis]) => rows(x, axis, (v) => v.slice(1).map((q, i) => q - v[i])),
    { test: signed, exact: false },
  ),
  takeAlongAxis: over(
    withAxis,
    (mx, x, [axis]) => mx.takeAlongAxis(x, mx.argsort(mx.negative(x), axis), axis),
    (x, [axis]) => rows(x, axis, (v) => order(v.map((q) => -q)).map((i) => v[i])),
    { test: (v) => v.exact && signed(v) },
  ),
  putAlongAxis: over(
    withAxis,
    (mx, x, [axis]) => mx.putAlongAxis(x, mx.argsort(x, axis), x, axis),
    (x, [axis]) =>
      rows(x, axis, (v) => {
        const out = [...v];
        order(v).forEach((at, i) => out[at] = v[i]);
        return out;
      }),
    { test: (v) => v.exact && signed(v) },
  ),
  median: over(
    withAxis,
    (mx, x, [axis]) => mx.median(x, axis),
    (x, [axis]) =>
      reduce(x, [axis], false, (v) => {
        const s = v.toSorted((a, b) => a - b);
        return (s[Math.floor((s.length - 1) / 2)] + s[Math.floor(s.length / 2)]) / 2;
      }),
    { test: (v) => v.dtype === "float32", exact: false },
  ),
  tril: over(
    (d, v) => v.shape.length < 2 ? undefined : [d.int(-2, 2)],
    (mx, x, [k]) => mx.tril(x, k),
    (x, [k]) => build(x.shape, (at) => at[at.length - 1] <= at[at.length - 2] + k ? x.data[ravel(x.shape, at)] : 0),
  ),
  elsewhere: over(
    (d) => [d.pick([1, -2])],
    (mx, x, [by]) => mx.stream(otherStream(), () => mx.subtract(x, by)),
    (x, [by]) => map((v) => v - by, x),
    { test: signed, exact: false },
  ),
};

/** Further kinds of ops. */
const MORE_OPS: Readonly<Record<string, ProgramOp>> = {
  ...CONVOLUTIONS,
  fftReal: spectrum("real"),
  fftImag: spectrum("imag"),
  ...WIDE,
  ...LINES,
};

/** All kinds of ops. */
export const PROGRAM_OPS: Readonly<Record<string, ProgramOp>> = { ...BASIC_OPS, ...MORE_OPS };
