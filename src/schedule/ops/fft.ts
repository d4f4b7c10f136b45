/**
 * Rules of Fourier transforms along the last axis.
 *
 * A transform of n elements whose primes are at most 13 is some passes over memory, each by a factor of n. They use Stockham's order, so
 * nothing is ever reversed. Other sizes are a convolution with a chirp (Bluestein), which takes transforms of a power of two. Those of real
 * numbers are transforms of half as many complex ones where n is even.
 *
 * @module
 */

import * as k from "../../backend/kernels.ts";
import { float32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { matrixShape, type Value } from "../plan/value.ts";
import type { Inputs, Rule, RuleName } from "./rule.ts";

/** Primes that kernels have butterflies for. */
const PRIMES = [2, 3, 5, 7, 11, 13];

/** Most complex numbers that a workgroup transforms in shared memory, which holds them twice. */
const TILE = 2048;

/** Contiguous columns in the 64 bytes that one read of memory takes. */
const SIDE_BY_SIDE = 8;

/** Rows from which on a pass of the CPU, which has a row in each lane, needs no second one beside it. */
const LANES = 8;

/** Largest factor of a pass in the CPU's kernel. */
const CPU_FACTOR = 1024;

/** A GPU's pass that reads and writes memory once is of about this factor where there are several. */
const GPU_FACTOR = 256;

/** Order of the loop over a stage's butterflies: ORDER of fft_pass. */
const ORDERS = { columns: 0, elementsOut: 1, elements: 2 } as const;

/** Complex numbers in memory: (rows, cols). */
function complexRows(l: Lowering, rows: number, cols: number): Value {
  return l.temporary([rows, cols, 2], float32);
}

/** A table of roots of unity: see FftTablePush. */
interface Roots {
  readonly value: Value;
  readonly order: number;
  readonly shift: number;
}

function rootsOf(l: Lowering, order: number): Roots {
  const shift = order <= 64 ? 0 : Math.ceil(Math.log2(order) / 2);
  const entries = Math.floor((order - 1) / 2 ** shift) + 1 + 2 ** shift;
  const value = l.temporary([entries, 2], float32);
  l.emit("fft_table", [value], { spec: {}, push: { order, shift }, workgroups: l.groups(entries) });
  return { value, order, shift };
}

/** The primes of n, undefined if one is too large for a butterfly. */
function primesOf(n: number): number[] | undefined {
  const primes: number[] = [];
  for (const prime of PRIMES) for (; n % prime === 0; n /= prime) primes.push(prime);
  return n === 1 ? primes : undefined;
}

/** The factors of n that its passes take, on a GPU with a tile in shared memory or on the CPU. */
function passesOf(n: number, rows: number, tile: number | undefined): number[] {
  const whole = tile ?? (rows >= LANES || n < 16 ? CPU_FACTOR : 1);
  if (n <= whole) return [n];
  const most = tile === undefined ? CPU_FACTOR : tile / 4;
  const about = tile === undefined ? CPU_FACTOR : GPU_FACTOR;
  const passes: number[] = [];
  let count = Math.max(2, Math.ceil(Math.log(n) / Math.log(about)));
  for (let rest = n; rest > 1; count = Math.max(1, count - 1)) {
    const wanted = Math.log(rest) / count;
    let best = 1;
    for (let d = 2; d <= Math.min(rest, most); d++) {
      if (rest % d === 0 && (best === 1 || Math.abs(Math.log(d) - wanted) < Math.abs(Math.log(best) - wanted))) {
        best = d;
      }
    }
    passes.push(best);
    rest /= best;
  }
  return passes;
}

/** Radices of the stages of a pass. Large ones save rounds of shared memory on a GPU, and registers are few on a CPU. */
function radicesOf(factor: number, cpu: boolean): number[] {
  const primes = primesOf(factor) ?? [];
  let twos = primes.filter((p) => p === 2).length;
  const radices = primes.filter((p) => p !== 2).reverse();
  const take = (bits: number): void => {
    radices.push(2 ** bits);
    twos -= bits;
  };
  if (cpu) {
    if (twos % 2 === 1 && twos > 1) take(3);
    while (twos > 1) take(2);
  } else {
    while (twos >= 7 || twos === 4) take(4);
    while (twos >= 5 || twos === 3) take(3);
    if (twos === 4) take(4);
  }
  if (twos > 0) take(twos);
  return radices;
}

/** How a transform of complex rows is computed. */
interface Transform {
  readonly rows: number;
  readonly size: number;
  readonly inverse: boolean;
  readonly scale: number;
}

/** Transforms contiguous complex rows; `roots` are of a multiple of the size. */
function transform(l: Lowering, x: Value, t: Transform, roots: Roots, out: Value): void {
  const { rows, size, inverse } = t;
  const { sharedBytes, maxThreads } = l.backend.limits;
  const cpu = sharedBytes === 0;
  const tile = Math.min(TILE, 2 ** Math.floor(Math.log2(sharedBytes / 16)));
  const passes = passesOf(size, rows, cpu ? undefined : tile);
  let [from, done] = [x, 1];
  passes.forEach((factor, i) => {
    const last = i === passes.length - 1;
    const to = last ? out : complexRows(l, rows, size);
    const radices = radicesOf(factor, cpu);
    const columns = rows * size / factor;
    const perGroup = cpu
      ? 1
      : Math.max(1, Math.min(Math.floor(tile / factor), columns, factor === size ? 64 : 4 * SIDE_BY_SIDE));
    const threads = Math.ceil(perGroup * factor / Math.max(...radices) / 32) * 32;
    l.emit("fft_pass", [from, roots.value, to], {
      spec: {
        FACTORS: radices.reduce((bits, radix, at) => bits | (radix - 1) << 4 * at, 0) >>> 0,
        FACTOR: factor,
        COLUMNS: perGroup,
        ORDER: factor === size ? ORDERS.elements : done === 1 ? ORDERS.elementsOut : ORDERS.columns,
        INVERSE: inverse ? 1 : 0,
      },
      push: { rows, size, done, order: roots.order, shift: roots.shift, scale: last ? t.scale : 1 },
      threads: Math.min(threads, 256, maxThreads),
      workgroups: Math.ceil(columns / perGroup),
    });
    [from, done] = [to, done * factor];
  });
}

/** Parts of a dispatch of fft_map that most modes leave out. */
interface MapOptions {
  readonly roots?: Roots;
  readonly filter?: Value;
  readonly inverse?: boolean;
  readonly scale?: number;
}

/** A dispatch of fft_map: rows of `columns[0]` to rows of `columns[1]` elements. */
function map(
  l: Lowering,
  mode: number,
  x: Value | undefined,
  out: Value,
  rows: number,
  columns: readonly [number, number],
  n: number,
  { roots, filter, inverse = false, scale = 1 }: MapOptions = {},
): void {
  l.emit("fft_map", [x, roots?.value, filter, out], {
    spec: { MODE: mode, INVERSE: inverse ? 1 : 0 },
    push: {
      rows,
      in_cols: columns[0],
      out_cols: columns[1],
      n,
      order: roots?.order ?? 1,
      shift: roots?.shift ?? 0,
      scale,
    },
    workgroups: l.groups(rows * columns[1]),
  });
}

/** Transforms contiguous complex rows of any size; `roots` where a table of a multiple of the size exists. */
function complexTransform(l: Lowering, x: Value, t: Transform, out: Value, roots?: Roots): void {
  const { rows, size, inverse, scale } = t;
  if (size === 1) return map(l, k.FFT_HEAD, x, out, rows, [1, 1], 1, { scale });
  if (primesOf(size)) return transform(l, x, t, roots ?? rootsOf(l, size), out);
  // x[k] chirp[k], convolved with the chirp's conjugate, times the chirp.
  let padded = 1;
  while (padded < 2 * size - 1) padded *= 2;
  const chirp = rootsOf(l, 2 * size);
  const inner = rootsOf(l, padded);
  const [filter, spectrum] = [complexRows(l, 1, padded), complexRows(l, 1, padded)];
  map(l, k.FFT_FILTER, undefined, filter, 1, [padded, padded], size, { roots: chirp });
  transform(l, filter, { rows: 1, size: padded, inverse: false, scale: 1 / padded }, inner, spectrum);
  const [chirped, product] = [complexRows(l, rows, padded), complexRows(l, rows, padded)];
  map(l, k.FFT_CHIRP_IN, x, chirped, rows, [size, padded], size, { roots: chirp, inverse });
  const [there, back] = [complexRows(l, rows, padded), complexRows(l, rows, padded)];
  transform(l, chirped, { rows, size: padded, inverse: false, scale: 1 }, inner, there);
  map(l, k.FFT_PRODUCT, there, product, rows, [padded, padded], size, { filter: spectrum });
  transform(l, product, { rows, size: padded, inverse: true, scale: 1 }, inner, back);
  map(l, k.FFT_CHIRP_OUT, back, out, rows, [padded, size], size, { roots: chirp, inverse, scale });
}

/** Real rows of n elements to the first half of their spectrum. */
function realForward(l: Lowering, x: Value, rows: number, n: number, scale: number, out: Value): void {
  const columns = Math.floor(n / 2) + 1;
  if (n % 2 === 1) {
    const [wide, spectrum] = [complexRows(l, rows, n), complexRows(l, rows, n)];
    map(l, k.FFT_WIDEN, x, wide, rows, [n, n], n);
    complexTransform(l, wide, { rows, size: n, inverse: false, scale }, spectrum);
    return map(l, k.FFT_HEAD, spectrum, out, rows, [n, columns], n);
  }
  const roots = rootsOf(l, n);
  const pairs = complexRows(l, rows, n / 2);
  complexTransform(l, x, { rows, size: n / 2, inverse: false, scale: 1 }, pairs, roots);
  map(l, k.FFT_SPLIT, pairs, out, rows, [n / 2, columns], n, { roots, scale });
}

/** The first half of a spectrum to real rows of n elements. */
function realInverse(l: Lowering, x: Value, rows: number, n: number, scale: number, out: Value): void {
  const columns = Math.floor(n / 2) + 1;
  if (n % 2 === 1) {
    const [whole, wide] = [complexRows(l, rows, n), complexRows(l, rows, n)];
    map(l, k.FFT_HERMITIAN, x, whole, rows, [columns, n], n);
    complexTransform(l, whole, { rows, size: n, inverse: true, scale }, wide);
    return map(l, k.FFT_REAL_PART, wide, out, rows, [n, n], n);
  }
  const roots = rootsOf(l, n);
  const pairs = complexRows(l, rows, n / 2);
  map(l, k.FFT_MERGE, x, pairs, rows, [columns, n / 2], n, { roots });
  complexTransform(l, pairs, { rows, size: n / 2, inverse: true, scale }, out, roots);
}

/** The same memory as floats, complex numbers as pairs. */
function floats(value: Value): Value {
  return value.dtype === float32 ? value : { ...value, dtype: float32, offset: 2 * value.offset };
}

/** Contiguous rows that begin where complex numbers may, as complex numbers or as real ones. */
function operand(l: Lowering, x: Value, complex: boolean): Value {
  const dense = floats(l.contiguous(x, true));
  if ((x.dtype !== float32) === complex) return dense;
  const { rows, cols } = matrixShape(x.shape);
  const out = complex ? complexRows(l, rows, cols) : l.temporary(x.shape, float32);
  map(l, complex ? k.FFT_WIDEN : k.FFT_REAL_PART, dense, out, rows, [cols, cols], cols);
  return out;
}

function fftRule(l: Lowering, node: Node, [x]: Inputs): Value {
  const { inverse, real, scale } = attrsOf(node, "fft");
  const out = l.temporary(node.shape, node.dtype);
  if (sizeOf(node.shape) === 0) return out;
  const { rows, cols: size } = matrixShape(node.shape);
  const to = floats(out);
  // The second half of a real row's spectrum mirrors the first. On a GPU passes over whole rows take less than these maps.
  if (l.backend.limits.sharedBytes === 0 && !real && !inverse && x.dtype === float32 && size % 2 === 0) {
    const columns = size / 2 + 1;
    const half = complexRows(l, rows, columns);
    realForward(l, operand(l, x, false), rows, size, scale, half);
    map(l, k.FFT_HERMITIAN, half, to, rows, [columns, size], size);
    return out;
  }
  const from = operand(l, x, inverse || !real);
  if (!real) complexTransform(l, from, { rows, size, inverse, scale }, to);
  else if (inverse) realInverse(l, from, rows, size, scale, to);
  else realForward(l, from, rows, matrixShape(x.shape).cols, scale, to);
  return out;
}

/** Rules of this file. */
export const TRANSFORMS = { fft: fftRule } as const satisfies { readonly [K in RuleName]?: Rule };
