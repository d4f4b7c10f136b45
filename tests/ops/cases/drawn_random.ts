/**
 * Families of `mx.random` with explicit keys: Threefry 2x32 written down once more, and what is made of its words.
 */

import { build, type Dense, dense, erf, erfinv, map, ravel, read, size } from "../../support/oracles/oracle.ts";
import { FLOATS } from "./case.ts";
import { type Draw, stored } from "./draw.ts";
import { type Drawn, elementTolerance, type Families } from "./family.ts";

type Key = readonly [number, number];

const ROTATIONS = [[13, 15, 26, 6], [17, 29, 16, 24]] as const;

/** Threefry 2x32 with twenty rounds (Salmon et al., 2011). */
function threefry([k0, k1]: Key, [c0, c1]: Key): Key {
  const keys = [k0, k1, (k0 ^ k1 ^ 0x1bd11bda) >>> 0];
  let [a, b] = [(c0 + k0) >>> 0, (c1 + k1) >>> 0];
  for (let i = 0; i < 5; i++) {
    for (const r of ROTATIONS[i % 2]) {
      a = (a + b) >>> 0;
      b = (b << r | b >>> (32 - r)) >>> 0;
      b = (b ^ a) >>> 0;
    }
    a = (a + keys[(i + 1) % 3]) >>> 0;
    b = (b + keys[(i + 2) % 3] + i + 1) >>> 0;
  }
  return [a, b];
}

/**
 * MLX's words of a key: the two halves of a hash are half the array apart. The middle word of an odd count has its own
 * hash.
 */
export function words(key: Key, count: number): number[] {
  const half = Math.floor(count / 2);
  const odd = count % 2;
  const out = new Array<number>(count);
  for (let i = 0; i < half; i++) [out[i], out[i + half + odd]] = threefry(key, [i, i + half + odd]);
  if (odd) out[half] = threefry(key, [half, 0])[0];
  return out;
}

const f32 = Math.fround;

/** Uniform float32 numbers of [0, 1). */
export function uniforms(key: Key, count: number): number[] {
  return words(key, count).map((w) => Math.min(1 - 2 ** -24, f32(w) / 2 ** 32));
}

/** A row whose numbers come from a key. */
function drawn(
  d: Draw,
  shape: readonly number[],
  what: string,
  row: (key: Key, count: number) => Omit<Drawn, "inputs">,
): Drawn {
  const seed = d.pick([0, 1, d.int(0, 2 ** 31), 2 ** 32 + d.int(0, 99)]);
  const made = row([Math.floor(seed / 2 ** 32), seed >>> 0], size(shape));
  return { inputs: [], ...made, what: `(${shape}) seed ${seed} ${what} ${made.what ?? ""}` };
}

const seedOf = ([high, low]: Key): number => high * 2 ** 32 + low;
const LOW = -(1 - 2 ** -24);

/** float32's steps from words to low + (high - low) * u. */
function between(u: number, low: number, high: number): number {
  return f32(f32(f32(high - low) * u) + low);
}

const filled = (shape: readonly number[], values: readonly number[]): Dense => ({
  shape,
  data: Float64Array.from(values),
});

/** Random numbers. */
export function drawnRandom(): Families {
  const gumbel = (u: number): number => -Math.log(-Math.log(u));
  return {
    "random.key": (d) =>
      drawn(d, [2], "", (key) => ({
        run: (mx) => mx.random.key(seedOf(key)),
        oracle: () => filled([2], key),
        tolerance: 0,
        dtype: "uint32",
      })),
    "random.split": (d) => {
      const count = d.int(1, 9);
      return drawn(d, [count, 2], "", (key, n) => ({
        run: (mx) => mx.random.split(mx.random.key(seedOf(key)), count),
        oracle: () => filled([count, 2], words(key, n)),
        tolerance: 0,
        dtype: "uint32",
      }));
    },
    "random.bits": (d) => {
      const shape = d.shape();
      return drawn(d, shape, "", (key, n) => ({
        run: (mx) => mx.random.bits(shape, mx.random.key(seedOf(key))),
        oracle: () => filled(shape, words(key, n)),
        tolerance: 0,
        dtype: "uint32",
      }));
    },
    "random.uniform": (d) => {
      const shape = d.shape();
      const dtype = d.dtype(FLOATS);
      const [low, high] = d.pick([[0, 1], [-2, 3], [0.5, 0.75]]);
      const most = { float32: 1 - 2 ** -24, float16: 1 - 2 ** -11, bfloat16: 1 - 2 ** -8 }[dtype];
      return drawn(d, shape, `${low} ${high} ${dtype}`, (key, n) => ({
        run: (mx) => mx.random.uniform(low, high, shape, mx[dtype], mx.random.key(seedOf(key))),
        oracle: () => filled(shape, uniforms(key, n).map((u) => low + (high - low) * stored(dtype, Math.min(u, most)))),
        tolerance: elementTolerance(dtype),
        absolute: { float32: undefined, float16: 2e-3, bfloat16: 2e-2 }[dtype], // several roundings
        dtype,
      }));
    },
    "random.normal": (d) => {
      const shape = d.shape();
      const dtype = d.dtype(FLOATS);
      const [loc, scale] = d.pick([[null, null], [2, 0.5], [-1, null], [null, 3]]);
      return drawn(d, shape, `${loc} ${scale} ${dtype}`, (key, n) => ({
        run: (mx) => mx.random.normal(shape, mx[dtype], loc, scale, mx.random.key(seedOf(key))),
        oracle: () =>
          filled(
            shape,
            uniforms(key, n).map((u) => Math.SQRT2 * erfinv(between(u, LOW, 1)) * (scale ?? 1) + (loc ?? 0)),
          ),
        tolerance: elementTolerance(dtype),
        dtype,
      }));
    },
    "random.multivariateNormal": (d) => {
      const n = d.int(1, 5);
      const shape = d.shape(0, 2);
      const spread = Array.from({ length: n }, () => 0.5 + 2 * d.next());
      const mean = d.input([n], "float32", [-2, 2]);
      return drawn(d, [...shape, n], `${spread}`, (key, count) => ({
        inputs: [mean],
        run: (mx, [m]) =>
          mx.random.multivariateNormal(m, mx.diag(spread.map((s) => s * s)), shape, null, mx.random.key(seedOf(key))),
        oracle: ([m]) => ({
          shape: [...shape, n],
          data: Float64Array.from(
            uniforms(key, count),
            (u, i) => Math.SQRT2 * erfinv(between(u, LOW, 1)) * spread[i % n] + m.data[i % n],
          ),
        }),
        tolerance: 1e-7,
        dtype: "float32",
      } as Drawn));
    },
    "random.truncatedNormal": (d) => {
      const shape = d.shape();
      const [low, high] = d.pick([[-1, 1], [-2, 0.5], [0.5, 2]]);
      return drawn(d, shape, `${low} ${high}`, (key, n) => ({
        run: (mx) => mx.random.truncatedNormal(low, high, shape, mx.float32, mx.random.key(seedOf(key))),
        oracle: () => {
          const [from, to] = [erf(low / Math.SQRT2), erf(high / Math.SQRT2)];
          return filled(
            shape,
            uniforms(key, n).map((u) => Math.min(high, Math.max(low, Math.SQRT2 * erfinv(from + (to - from) * u)))),
          );
        },
        tolerance: 1e-7,
        dtype: "float32",
      }));
    },
    "random.bernoulli": (d) => {
      const shape = d.shape(0, 3);
      const own = d.narrowed(shape);
      return drawn(d, shape, "", (key, n) => ({
        inputs: [d.input(own, "float32", [0, 1])],
        run: (mx, [p]) => mx.random.bernoulli(p, shape, mx.random.key(seedOf(key))),
        oracle: ([p]) => map((u, q) => Number(u < q), filled(shape, uniforms(key, n)), p),
        tolerance: 0,
        dtype: "bool",
      } as Drawn));
    },
    "random.randint": (d) => {
      const shape = d.shape();
      const [low, high] = d.pick([[0, 10], [-5, 5], [0, 1], [-1000, 1000]]);
      return drawn(d, shape, `${low} ${high}`, (key, n) => ({
        run: (mx) => mx.random.randint(low, high, shape, mx.int32, mx.random.key(seedOf(key))),
        oracle: () => filled(shape, uniforms(key, n).map((u) => Math.floor(between(u, low, high)))),
        tolerance: 0,
        dtype: "int32",
      }));
    },
    "random.gumbel": (d) => {
      const shape = d.shape();
      return drawn(d, shape, "", (key, n) => ({
        run: (mx) => mx.random.gumbel(shape, mx.float32, mx.random.key(seedOf(key))),
        oracle: () => filled(shape, uniforms(key, n).map(gumbel)),
        tolerance: 1e-7,
        dtype: "float32",
      }));
    },
    "random.laplace": (d) => {
      const shape = d.shape();
      const [loc, scale] = d.pick([[0, 1], [2, 0.5]]);
      return drawn(d, shape, `${loc} ${scale}`, (key, n) => ({
        run: (mx) => mx.random.laplace(shape, mx.float32, loc, scale, mx.random.key(seedOf(key))),
        oracle: () =>
          filled(
            shape,
            uniforms(key, n).map((u) => {
              const v = between(u, LOW, 1);
              return Math.sign(v) * Math.log1p(-Math.abs(v)) * scale + loc;
            }),
          ),
        tolerance: 1e-7,
        dtype: "float32",
      }));
    },
    "random.permutation": (d) => {
      const sorted = (key: Key, n: number): number[] => {
        const w = words(key, n);
        return w.map((_, i) => i).sort((a, b) => w[a] - w[b] || a - b);
      };
      if (d.chance(0.5)) {
        const count = d.pick([0, 1, 5, 100]);
        return drawn(d, [count], "", (key, n) => ({
          run: (mx) => mx.random.permutation(count, 0, mx.random.key(seedOf(key))),
          oracle: () => filled([count], sorted(key, n)),
          tolerance: 0,
          dtype: "uint32",
        }));
      }
      const shape = d.shape(1, 3, false);
      const axis = d.axis(shape.length);
      const at = (axis + shape.length) % shape.length;
      return drawn(d, [shape[at]], `along ${axis}`, (key, n) => ({
        inputs: [d.input(shape, "float32")],
        run: (mx, [x]) => mx.random.permutation(x, axis, mx.random.key(seedOf(key))),
        oracle: ([x]) => {
          const order = sorted(key, n);
          return build(shape, (p) => x.data[ravel(shape, p.map((v, a) => a === at ? order[v] : v))]);
        },
        tolerance: 0,
        dtype: "float32",
      } as Drawn));
    },
    "random.categorical": (d) => {
      const shape = [d.int(2, 4), ...d.shape(1, 2, false)];
      const at = d.int(0, shape.length - 1);
      const rest = shape.filter((_, i) => i !== at);
      const samples = d.chance(0.4) ? d.int(1, 5) : undefined;
      if (size(rest) === 1) rest.fill(1);
      const to = samples === undefined ? rest : [...rest, samples];
      // The categories lie where the logits have them, counted from the end.
      const wide = samples === undefined ? shape : [...shape, 1];
      const noise = to.toSpliced(to.length + 1 + at - wide.length, 0, shape[at]);
      return drawn(d, noise, `along ${at}${samples ? `, ${samples} each` : ""}`, (key, n) => ({
        inputs: [d.input(shape, "float32")],
        run: (mx, [x]) => mx.random.categorical(x, at, { numSamples: samples, key: mx.random.key(seedOf(key)) }),
        oracle: ([x]) => {
          if (size(rest) === 1 && to.length > 0) return inverse([...x.data], uniforms(key, size(to)), to);
          const scores = map(
            (p, q) => p + q,
            { shape: wide, data: x.data },
            filled(noise, uniforms(key, n).map(gumbel)),
          );
          const axis = scores.shape.length + at - wide.length;
          return build(scores.shape.toSpliced(axis, 1), (p) => {
            const line = Array.from({ length: shape[at] }, (_, i) => read(scores, p.toSpliced(axis, 0, i)));
            return line.indexOf(Math.max(...line));
          });
        },
        tolerance: 0,
        dtype: "uint32",
      } as Drawn));
    },
  };
}

/** Draws from one row by its cumulative probabilities. */
function inverse(row: number[], u: number[], shape: readonly number[]): Dense {
  const most = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return dense(shape, (i) => {
    let before = 0;
    let last = 0;
    powers.forEach((p, j) => {
      if (before / total <= u[i]) last = j;
      before += p;
    });
    return last;
  });
}
