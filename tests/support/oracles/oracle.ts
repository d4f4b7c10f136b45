/**
 * Plain float64 arrays: the oracle of the op tests. Slow loops that can be checked by eye, no code shared with src/.
 */

/** A dense row-major array of numbers (booleans are 0 and 1). */
export interface Dense {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export function size(shape: readonly number[]): number {
  return shape.reduce((n, d) => n * d, 1);
}

export function dense(shape: readonly number[], fill: (i: number) => number): Dense {
  return { shape, data: Float64Array.from({ length: size(shape) }, (_, i) => fill(i)) };
}

/** Multi-index of a flat position. */
export function unravel(shape: readonly number[], i: number): number[] {
  const at = new Array<number>(shape.length);
  for (let d = shape.length - 1; d >= 0; d--) {
    at[d] = i % shape[d];
    i = Math.floor(i / shape[d]);
  }
  return at;
}

/** Flat position of a multi-index. */
export function ravel(shape: readonly number[], at: readonly number[]): number {
  return at.reduce((n, x, d) => n * shape[d] + x, 0);
}

/** An array of `shape` whose element at a multi-index is `f(index)`. */
export function build(shape: readonly number[], f: (at: number[]) => number): Dense {
  return dense(shape, (i) => f(unravel(shape, i)));
}

/** Element of `x` at a multi-index of a shape that x broadcasts to. */
export function read(x: Dense, at: readonly number[]): number {
  const own = at.slice(at.length - x.shape.length).map((v, d) => (x.shape[d] === 1 ? 0 : v));
  return x.data[ravel(x.shape, own)];
}

/** NumPy's broadcast shape. */
export function broadcast(...shapes: (readonly number[])[]): number[] {
  const rank = Math.max(...shapes.map((s) => s.length));
  return Array.from({ length: rank }, (_, d) => {
    const sizes = shapes.map((s) => s[s.length - rank + d] ?? 1);
    return sizes.find((v) => v !== 1) ?? 1;
  });
}

/** Applies a scalar function over broadcast inputs. */
export function map(f: (...v: number[]) => number, ...inputs: Dense[]): Dense {
  const shape = broadcast(...inputs.map((x) => x.shape));
  if (inputs.every((x) => x.data.length === size(shape))) {
    return dense(shape, (i) => f(...inputs.map((x) => x.data[i])));
  }
  return build(shape, (at) => f(...inputs.map((x) => read(x, at))));
}

/** Folds the values along `axes`; `f` gets them in row-major order. */
export function reduce(x: Dense, axes: readonly number[], keepdims: boolean, f: (values: number[]) => number): Dense {
  const kept = x.shape.map((d, i) => (axes.includes(i) ? 1 : d));
  const groups: number[][] = Array.from({ length: size(kept) }, () => []);
  for (let i = 0; i < x.data.length; i++) {
    const at = unravel(x.shape, i).map((v, d) => (axes.includes(d) ? 0 : v));
    groups[ravel(kept, at)].push(x.data[i]);
  }
  const shape = keepdims ? kept : x.shape.filter((_, i) => !axes.includes(i));
  return { shape, data: Float64Array.from(groups, f) };
}

/** Replaces every row along `axis` by `f(row)`, which keeps or changes its length. */
export function rows(x: Dense, axis: number, f: (row: number[]) => number[]): Dense {
  const length = f(new Array(x.shape[axis]).fill(0)).length;
  const shape = x.shape.map((d, i) => (i === axis ? length : d));
  const out = dense(shape, () => 0);
  const outer = x.shape.map((d, i) => (i === axis ? 1 : d));
  for (let i = 0; i < size(outer); i++) {
    const at = unravel(outer, i);
    const put = (v: number): number[] => at.map((a, d) => (d === axis ? v : a));
    const row = Array.from({ length: x.shape[axis] }, (_, v) => x.data[ravel(x.shape, put(v))]);
    f(row).forEach((value, v) => out.data[ravel(shape, put(v))] = value);
  }
  return out;
}

/** Batched matrix product of arrays with at least two dimensions. */
export function matmul(a: Dense, b: Dense): Dense {
  const [m, k] = a.shape.slice(-2);
  const n = b.shape[b.shape.length - 1];
  const [left, right] = [a.shape.slice(0, -2), b.shape.slice(0, -2)];
  const lead = broadcast(left, right);
  const out = dense([...lead, m, n], () => 0);
  /** First element of the matrix of a batch, whose axes of size 1 repeat. */
  const start = (own: readonly number[], batch: readonly number[], each: number): number =>
    each * ravel(own, batch.slice(batch.length - own.length).map((v, d) => (own[d] === 1 ? 0 : v)));
  for (let batch = 0; batch < size(lead); batch++) {
    const at = unravel(lead, batch);
    const [p, q, to] = [start(left, at, m * k), start(right, at, k * n), batch * m * n];
    for (let i = 0; i < m; i++) {
      for (let t = 0; t < k; t++) {
        const factor = a.data[p + i * k + t];
        for (let j = 0; j < n; j++) out.data[to + i * n + j] += factor * b.data[q + t * n + j];
      }
    }
  }
  return out;
}

/** The array with its axes in another order. */
export function transpose(x: Dense, axes: readonly number[]): Dense {
  return build(axes.map((a) => x.shape[a]), (at) => {
    const from = new Array<number>(at.length);
    axes.forEach((a, d) => from[a] = at[d]);
    return x.data[ravel(x.shape, from)];
  });
}

/** mean((a - b)²) / mean(b²): how far `actual` is from `expected`. NaN and infinities must be equal; they give Infinity otherwise. */
export function nmse(actual: ArrayLike<number | bigint>, expected: ArrayLike<number | bigint>): number {
  let error = 0;
  let power = 0;
  for (let i = 0; i < expected.length; i++) {
    const e = Number(expected[i]);
    const a = Number(actual[i]);
    if (!Number.isFinite(e) || !Number.isFinite(a)) {
      if (!Object.is(a, e) && !(Number.isNaN(a) && Number.isNaN(e))) return Infinity;
      continue;
    }
    error += (a - e) ** 2;
    power += e * e;
  }
  return error === 0 ? 0 : error / (power || 1);
}

/** A small deterministic generator (mulberry32): uniform numbers in [0, 1). */
export function generator(seed: number): () => number {
  let s = seed >>> 0;
  return () => {
    s = (s + 0x6d2b79f5) >>> 0;
    let t = Math.imul(s ^ (s >>> 15), 1 | s);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The error function to double precision: series for small arguments, continued fraction for large ones. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (x === 0) return x;
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = x;
    let sum = x;
    for (let n = 1; n < 80; n++) {
      term *= -x * x / n;
      sum += term / (2 * n + 1);
    }
    return 2 / Math.sqrt(Math.PI) * sum;
  }
  let f = 0;
  for (let n = 60; n > 0; n--) f = n / 2 / (a + f);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + f));
}

/** Its inverse, by bisection; infinite at the ends, NaN beyond. */
export function erfinv(y: number): number {
  if (!(Math.abs(y) <= 1)) return NaN;
  if (Math.abs(y) === 1) return y * Infinity;
  if (Math.abs(y) < 1e-5) return y * Math.sqrt(Math.PI) / 2;
  let [low, high] = [0, 6];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (erf(middle) < Math.abs(y)) low = middle;
    else high = middle;
  }
  return Math.sign(y) * high;
}

/** The nearest integer; halves go to the even one. */
export function roundEven(x: number): number {
  return Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);
}

/** The nearest number that bfloat16 holds. */
export function bfloat16(x: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  const bits = view.getUint32(0);
  view.setUint32(0, ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) * 65536);
  return view.getFloat32(0);
}

export function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}

/** The largest number, -Infinity of none. */
export function largest(values: readonly number[]): number {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}

/** Logarithm of the sum of exponentials, -Infinity of none. */
export function logsumexp(values: readonly number[]): number {
  const most = largest(values);
  return most === -Infinity ? most : most + Math.log(sum(values.map((x) => Math.exp(x - most))));
}

/** A group as affine quantization keeps it. */
export interface QuantizedGroup {
  readonly codes: number[];
  readonly scale: number;
  readonly bias: number;
}

/** MLX's affine quantization of one group, in its float32 steps. */
export function quantizeGroup(w: Float64Array, bits: number): QuantizedGroup {
  const f = Math.fround;
  const most = 2 ** bits - 1;
  const low = Math.min(...w);
  const high = Math.max(...w);
  const negative = Math.abs(low) > Math.abs(high);
  const edge = negative ? low : high;
  let scale = Math.max(f(f(high - low) / most), f(1e-7));
  const encode = (bias: number): number[] =>
    Array.from(w, (x) => Math.min(most, Math.max(0, roundEven(f(f(x - bias) / scale)))));
  if (bits === 1) return { codes: encode(low), scale, bias: low }; // two values: the edges
  if (!negative) scale = -scale;
  const q0 = roundEven(f(edge / scale));
  const bias = q0 === 0 ? 0 : edge;
  if (q0 !== 0) scale = f(edge / q0);
  return { codes: encode(bias), scale, bias };
}
