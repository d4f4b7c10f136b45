/**
 * Random graphs with takes of one row at their ends: products, attention and rotations among ops that keep rows apart and ops that
 * mix them.
 */

import * as mx from "../../../mod.ts";
import { Draw } from "../../ops/cases/draw.ts";

/** One op of a graph, as a function of the values before it. */
export type Step = (values: readonly mx.Tensor[]) => mx.Tensor;

/** An array of a shape, the same for a seed. */
export function leaf(shape: readonly number[], seed: number): mx.Tensor {
  return mx.random.normal([...shape], mx.float32, 0, 1, mx.random.key(seed));
}

/** An index of `count` rows, or outside of them, as a program may give it. */
function indexOf(d: Draw, count: number): () => mx.Tensor {
  const row = d.chance(0.1) ? d.pick([-2 * count - 1, -count - 1, count, 2 * count + 1]) : d.int(-count, count - 1);
  const dtype = d.pick([mx.int32, mx.int8, mx.uint32, mx.uint8]);
  const at = dtype.kind === "uint" && row < 0 ? row + 3 * count : row;
  const shift = d.chance(0.3) ? 1 : 0; // computed by the graph
  return () => mx.subtract(mx.array([at + shift], dtype), mx.array([shift], dtype));
}

/** Ops over a value of a shape; undefined if they do not fit. `others` are values that it may be combined with. */
const OPS: Record<string, (d: Draw, x: number, shapes: readonly (readonly number[])[]) => Step | undefined> = {
  unary(d, x) {
    const fn = d.pick([mx.tanh, mx.sigmoid, mx.negative, (a: mx.Tensor) => mx.add(a, 0.5), mx.contiguous]);
    return (v) => fn(v[x]);
  },
  cast: (_, x) => (v) => v[x].astype(mx.float16).astype(mx.float32),
  binary(d, x, shapes) {
    const fits = shapes.flatMap((s, i) => String(s) === String(shapes[x]) ? [i] : []);
    const [y, fn] = [d.pick(fits), d.pick([mx.add, mx.multiply, mx.maximum])];
    return (v) => fn(v[x], v[y]);
  },
  constant(d, x, shapes) {
    const [shape, seed] = [
      shapes[x].slice(d.int(0, shapes[x].length)).map((n) => d.chance(0.3) ? 1 : n),
      d.int(0, 999),
    ];
    return (v) => mx.add(v[x], leaf(shape, seed));
  },
  transpose(d, x, shapes) {
    const axes = shapes[x].map((_, i) => i);
    const i = d.int(0, axes.length - 1);
    const j = d.int(0, axes.length - 1);
    [axes[i], axes[j]] = [axes[j], axes[i]];
    return (v) => mx.transpose(v[x], axes);
  },
  split(_, x, shapes) {
    const at = shapes[x].findLastIndex((n) => n % 2 === 0);
    return at < 0 || shapes[x].length > 4 ? undefined : (v) => mx.unflatten(v[x], at, [2, -1]);
  },
  join(d, x, shapes) {
    if (shapes[x].length < 3) return undefined;
    const at = d.int(0, shapes[x].length - 2);
    return (v) => mx.flatten(v[x], at, at + 1);
  },
  slice(d, x, shapes) {
    const at = d.int(0, shapes[x].length - 1);
    const from = d.int(0, shapes[x][at] - 1);
    return (v) => v[x].index(...shapes[x].map((_, i) => i === at ? mx.Slice(from) : mx.Slice()));
  },
  reduce(d, x, shapes) {
    if (shapes[x].length < 3) return undefined;
    const [axis, keep] = [d.int(0, shapes[x].length - 1), d.chance(0.5)];
    return (v) => mx.mean(v[x], axis, keep);
  },
  softmax: (_, x) => (v) => mx.softmax(v[x], -1),
  scan: (d, x) => {
    const axis = d.pick([0, -1]);
    return (v) => mx.tanh(mx.cumsum(v[x], axis));
  },
  norm: (d, x, shapes) => {
    const weight = d.chance(0.7) ? d.int(0, 999) : undefined;
    return (v) => mx.fast.rmsNorm(v[x], weight === undefined ? null : leaf(shapes[x].slice(-1), weight), 1e-5);
  },
  matmul(d, x, shapes) {
    const [k] = shapes[x].slice(-1);
    const [n, seed] = [d.pick([4, 6, k]), d.int(0, 999)];
    return (v) => mx.tanh(mx.matmul(v[x], leaf([k, n], seed)));
  },
  square: (_, x) => (v) => mx.tanh(mx.matmul(v[x], mx.swapaxes(v[x], -1, -2))),
  rope(d, x, shapes) {
    const shape = shapes[x];
    const dims = 2 * Math.floor(shape[shape.length - 1] / 2);
    if (shape.length < 3 || dims === 0) return undefined;
    const start = d.int(0, 5);
    const offset = d.pick([
      () => start,
      () => mx.array(start, mx.int32),
      () => mx.array([start], mx.int32),
      () => mx.array(Array.from({ length: shape[0] }, (_, i) => start + i), mx.int32),
    ]);
    const own = d.chance(0.3);
    return (v) => {
      const by = own ? { freqs: mx.arange(1, 1 + dims / 2) } : { base: 100 };
      return mx.fast.rope(v[x], dims, { offset: offset(), scale: 0.5, ...by });
    };
  },
  attention(d, x, shapes) {
    const shape = shapes[x];
    if (shape.length !== 4) return undefined;
    const [B, , T, D] = shape;
    const keys = d.int(1, 8);
    const seed = d.int(0, 999);
    const own = d.chance(0.3); // keys of all rows
    const room = own ? T : keys;
    const mask = d.pick([null, "causal", "causal", "causal", "add", "bool"] as const);
    const kind = d.pick(["none", "one", "each"] as const);
    const counts = Array.from({ length: kind === "one" ? 1 : B }, () => d.int(-1, room + 2)); // limited to 0 … room
    return (v) => {
      const k = own ? mx.negative(v[x]) : leaf([B, 1, keys, D], seed);
      const given = mask === "add"
        ? leaf([T, room], seed)
        : mask === "bool"
        ? mx.greater(leaf([T, room], seed), 0)
        : mask;
      const lengths = kind === "none" ? null : mx.array(counts, mx.int32);
      return mx.fast.scaledDotProductAttention(v[x], k, mx.add(k, 1), { scale: 0.7, mask: given, lengths });
    };
  },
  take(d, x, shapes) {
    const several = shapes[x].flatMap((n, i) => n > 1 && i < shapes[x].length - 1 ? [i] : []);
    const axis = several.length > 0 && d.chance(0.9) ? d.pick(several) : d.int(0, shapes[x].length - 1);
    const index = indexOf(d, shapes[x][axis]);
    return (v) => mx.take(v[x], index(), axis);
  },
};

/** A graph as it is built. */
export interface Graph {
  readonly steps: readonly Step[];
  /** Numbers of the values that are asked for. */
  readonly wanted: readonly number[];
  /** Whether a value was rounded to 16 bits on the way. */
  readonly rough: boolean;
}

/**
 * The graph of a seed: mostly one path, with values that are read again, takes after it, and sometimes more outputs.
 */
export function drawGraph(seed: number): Graph {
  const d = new Draw(seed);
  const first = [d.int(1, 2), d.int(1, 3), d.int(2, 6), d.pick([4, 6])].slice(d.int(0, 1));
  return mx.tidy(() => {
    const steps: Step[] = [() => leaf(first, seed)];
    const values = [leaf(first, seed)];
    let rough = false;
    const add = (name: string, x: number): void => {
      const step = OPS[name](d, x, values.map((v) => v.shape));
      if (!step) return;
      const value = step(values);
      if (value.size > 2000 || value.ndim > 5) return;
      rough ||= name === "cast";
      steps.push(step);
      values.push(value);
    };
    const names = Object.keys(OPS).filter((name) => name !== "take" || d.chance(0.2));
    const path = (count: number, of: readonly string[], on = 0.95): void => {
      for (; count > 0; count--) add(d.pick(of), d.chance(on) ? values.length - 1 : d.int(0, values.length - 1));
    };
    path(d.int(0, 8), names, 0.7);
    path(d.int(1, 3), ["matmul", "attention", "rope"]);
    path(d.int(0, 3), ["unary", "binary", "constant", "transpose", "norm", "split"]);
    const above = values.length - 1;
    const index = indexOf(d, 2);
    const axis = values[above].shape.findIndex((n) => n === 2);
    for (let i = d.int(1, 2); i > 0; i--) add("take", above);
    if (axis >= 0 && d.chance(0.3)) { // twice the same row
      const same = (v: readonly mx.Tensor[]): mx.Tensor =>
        mx.multiply(...[1, 2].map((n) => mx.take(mx.tanh(v[above]), index(), axis).add(n)) as [mx.Tensor, mx.Tensor]);
      steps.push(same);
      values.push(same(values));
    }
    path(d.int(0, 2), ["unary", "norm", "matmul"]);
    const wanted = values.flatMap((_, i) =>
      i === values.length - 1 || (i > above && d.chance(0.5)) || d.chance(0.03) ? [i] : []
    );
    return { steps, wanted, rough };
  });
}
