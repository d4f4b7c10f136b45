/**
 * Families of convolutions and of products by index, by segment and of masked blocks.
 */

import { build, type Dense, ravel } from "../../support/oracles/oracle.ts";
import { FLOATS, productTolerance, type Tensor } from "./case.ts";
import type { Draw } from "./draw.ts";
import type { Drawn, Families } from "./family.ts";

const RANGE = [-1, 1] as const;

interface Attrs {
  readonly stride: readonly number[];
  readonly low: readonly number[];
  readonly high: readonly number[];
  readonly dilation: readonly number[];
  readonly inputDilation: readonly number[];
  readonly groups: number;
  readonly flip: boolean;
}

const span = (n: number, by: number): number => n === 0 ? 0 : 1 + (n - 1) * by;

/** The definition, an output at a time. */
function convolved(x: Dense, w: Dense, a: Attrs): Dense {
  const axes = a.stride.length;
  const [channels, filters] = [w.shape[axes + 1], w.shape[0] / a.groups];
  const out = a.stride.map((s, i) =>
    Math.floor(
      (span(x.shape[i + 1], a.inputDilation[i]) + a.low[i] + a.high[i] - span(w.shape[i + 1], a.dilation[i])) / s,
    ) + 1
  );
  const kernel = w.shape.slice(1, -1);
  const taps = build(kernel, () => 0).data.length;
  return build([x.shape[0], ...out, w.shape[0]], (at) => {
    const filter = at[axes + 1];
    const group = Math.floor(filter / filters);
    let total = 0;
    for (let tap = 0; tap < taps; tap++) {
      const t = kernel.map((_, i) => Math.floor(tap / kernel.slice(i + 1).reduce((p, q) => p * q, 1)) % kernel[i]);
      const from = t.map((v, i) => (at[i + 1] * a.stride[i] - a.low[i] + v * a.dilation[i]) / a.inputDilation[i]);
      if (from.some((v, i) => !Number.isInteger(v) || v < 0 || v >= x.shape[i + 1])) continue;
      const weight = a.flip ? t.map((v, i) => kernel[i] - 1 - v) : t;
      for (let c = 0; c < channels; c++) {
        total += x.data[ravel(x.shape, [at[0], ...from, group * channels + c])] *
          w.data[ravel(w.shape, [filter, ...weight, c])];
      }
    }
    return total;
  });
}

/** Operands over so many axes: now and then as deep as a tile, of odd sizes, in groups, depthwise, without images. */
function operands(d: Draw, axes: number): { x: number[]; w: number[]; groups: number; dilation: number[] } {
  const list = (of: () => number): number[] => Array.from({ length: axes }, of);
  const kernel = list(() => d.pick(axes < 3 ? [1, 2, 3, 3, 5] : [1, 2, 3]));
  const dilation = list(() => d.pick([1, 1, 1, 2]));
  const sizes = kernel.map((k, i) => span(k, dilation[i]) + d.int(0, axes === 1 ? 40 : axes === 2 ? 9 : 3));
  const depthwise = d.chance(0.2);
  const groups = depthwise ? d.pick(axes < 3 ? [3, 33, 64] : [3, 9]) : d.pick([1, 1, 1, 2, 3]);
  const channels = depthwise ? 1 : d.pick(axes < 3 ? [1, 3, 8, 8, 16, 35] : [1, 3, 8]);
  const filters = depthwise ? d.pick([1, 1, 2]) : d.pick(axes < 2 ? [1, 5, 9, 16, 65] : [1, 5, 9, 16]);
  return {
    x: [d.chance(0.06) ? 0 : d.int(1, 3), ...sizes, groups * channels],
    w: [groups * filters, ...kernel, channels],
    groups,
    dilation,
  };
}

function row(
  d: Draw,
  x: number[],
  w: number[],
  attrs: Attrs,
  run: (lib: Parameters<Drawn["run"]>[0], x: Tensor, w: Tensor) => Tensor,
): Drawn {
  const dtype = d.dtype(FLOATS);
  return {
    what: JSON.stringify(attrs),
    inputs: [d.input(x, dtype, RANGE), d.input(w, dtype, RANGE)],
    run: (mx, [a, b]) => run(mx, a, b),
    oracle: ([a, b]) => convolved(a, b, attrs),
    tolerance: productTolerance(dtype),
    dtype,
  };
}

/** Convolutions and products of chosen matrices. */
export function drawnConvolutions(): Families {
  const families: Families = {};
  for (const axes of [1, 2, 3] as const) {
    const list = (of: () => number): number[] => Array.from({ length: axes }, of);
    const ones = list(() => 1);
    families[`conv${axes}d`] = (d) => {
      const { x, w, groups, dilation } = operands(d, axes);
      const [stride, low] = [list(() => d.pick([1, 1, 2, 3])), list(() => d.int(0, 2))];
      const attrs = { stride, low, high: low, dilation, inputDilation: ones, groups, flip: false };
      return row(d, x, w, attrs, (mx, a, b) => mx[`conv${axes}d`](a, b, stride, low, dilation, groups));
    };
    families[`convTranspose${axes}d`] = (d) => {
      const { x, w, groups, dilation } = operands(d, axes);
      const [stride, more] = [list(() => d.pick([1, 2, 3])), list(() => d.int(0, 1))];
      const crop = w.slice(1, -1).map((k) => k > 1 ? d.int(0, 1) : 0);
      const low = crop.map((c, i) => dilation[i] * (w[i + 1] - 1) - c);
      const high = low.map((v, i) => v + more[i]);
      const attrs = { stride: ones, low, high, dilation, inputDilation: stride, groups, flip: true };
      return row(d, x, w, attrs, (mx, a, b) => mx[`convTranspose${axes}d`](a, b, stride, crop, dilation, more, groups));
    };
  }
  families.convGeneral = (d) => {
    const axes = d.int(1, 3);
    const list = (of: () => number): number[] => Array.from({ length: axes }, of);
    const { x, w, groups, dilation } = operands(d, axes);
    const [stride, low, high] = [list(() => d.pick([1, 2])), list(() => d.int(0, 2)), list(() => d.int(0, 3))];
    const inputDilation = list(() => d.pick([1, 1, 2, 3]));
    // Cropping leaves room for the weights.
    if (d.chance(0.3)) [low[0], high[0]] = [-1, d.int(1, 3)];
    const flip = d.chance(0.5);
    const attrs = { stride, low, high, dilation, inputDilation, groups, flip };
    return row(
      d,
      x,
      w,
      attrs,
      (mx, a, b) => mx.convGeneral(a, b, stride, [low, high], dilation, inputDilation, groups, flip),
    );
  };
  families.convolve = (d) => {
    const [n, k] = [d.pick([1, 2, 5, 8, 100, 301]), d.pick([1, 2, 3, 4, 9, 40])];
    const mode = d.pick(["full", "same", "valid"] as const);
    return {
      what: mode,
      inputs: [d.input([n], "float32", RANGE), d.input([k], "float32", RANGE)],
      run: (mx, [a, v]) => mx.convolve(a, v, mode),
      oracle: ([a, v]) => {
        const [x, y] = v.shape[0] > a.shape[0] ? [v.data, a.data] : [a.data, v.data];
        const [long, short] = [x.length, y.length];
        const first = mode === "full" ? 0 : mode === "valid" ? short - 1 : short - 1 - Math.floor(short / 2);
        const count = mode === "full" ? long + short - 1 : mode === "valid" ? long - short + 1 : long;
        return build([count], ([i]) => {
          let total = 0;
          for (let j = 0; j < short; j++) total += (x[first + i - j] ?? 0) * y[j];
          return total;
        });
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.gatherMm = (d) => {
    const dtype = d.dtype(FLOATS);
    const [m, k, n] = [d.pick([1, 1, 4, 33]), d.pick([0, 1, 8, 40, 70]), d.pick([1, 5, 16, 67])];
    const [left, right] = [d.int(1, 4), d.int(1, 6)];
    const lead = d.shape(1, 2);
    const [useLeft, useRight] = [d.chance(0.7), d.chance(0.8)];
    const own = [useLeft ? lead : [left], useRight ? lead : [right]];
    const broadcasts = useLeft !== useRight && (useLeft ? right : left) !== 1;
    // Without indices an array gives all of its matrices: the indices of the other become a column beside them.
    const index = broadcasts ? own.map((s, i) => (i === 0 ? useLeft : useRight) ? [s.length ? s[0] : 1, 1] : s) : own;
    const both = !useLeft && !useRight;
    const shapes = both ? [[left], [left]] : index;
    const a = d.input([left, m, k], dtype, RANGE);
    const b = d.input([both ? left : right, k, n], dtype, RANGE);
    const indices = [useLeft, useRight].map((use, i) =>
      use ? [d.input(shapes[i], d.few(["uint32", "int32"], 1), [0, (i === 0 ? left : right) - 1])] : []
    );
    return {
      what: `${useLeft} ${useRight}`,
      inputs: [a, b, ...indices.flat()],
      run: (mx, [x, y, ...rest]) => {
        const next = (use: boolean): Tensor | null => use ? rest.shift()! : null;
        const chosen = [next(useLeft), next(useRight)];
        return mx.gatherMm(x, y, chosen[0], chosen[1], { sortedIndices: false });
      },
      oracle: ([x, y, ...rest]) => {
        const every = (count: number): Dense => build([count], ([i]) => i);
        const i = useLeft ? rest.shift()! : every(left);
        const j = useRight ? rest.shift()! : every(both ? left : right);
        const rank = Math.max(i.shape.length, j.shape.length);
        const wide = (s: readonly number[]): number[] => [...new Array<number>(rank - s.length).fill(1), ...s];
        const [p, q] = [wide(i.shape), wide(j.shape)];
        const shape = p.map((v, at) => v === 1 ? q[at] : v);
        const of = (list: Dense, own: number[], at: number[]): number =>
          list.data[ravel(own, at.map((v, t) => own[t] === 1 ? 0 : v))];
        return build([...shape, m, n], (at) => {
          const place = at.slice(0, rank);
          const [u, v] = [of(i, p, place), of(j, q, place)];
          let total = 0;
          for (let t = 0; t < k; t++) {
            total += x.data[(u * m + at[rank]) * k + t] * y.data[(v * k + t) * n + at[rank + 1]];
          }
          return total;
        });
      },
      tolerance: productTolerance(dtype),
      dtype,
    };
  };
  families.segmentedMm = (d) => {
    const dtype = d.dtype(FLOATS);
    const [m, k, n] = [d.pick([1, 4, 33]), d.pick([1, 8, 40, 70, 300]), d.pick([1, 5, 67])];
    const lead = d.shape(0, 2);
    const count = lead.reduce((p, q) => p * q, 1);
    const pairs = Array.from({ length: count }, () => [d.int(0, k), d.int(0, k)].sort((p, q) => p - q)).flat();
    return {
      inputs: [
        d.input([m, k], dtype, RANGE),
        d.input([k, n], dtype, RANGE),
        { shape: [...lead, 2], dtype: "uint32", data: pairs },
      ],
      run: (mx, [x, y, s]) => mx.segmentedMm(x, y, s),
      oracle: ([x, y, s]) =>
        build([...lead, m, n], (at) => {
          const pair = 2 * ravel(lead, at.slice(0, lead.length));
          const [i, j] = at.slice(lead.length);
          let total = 0;
          for (let t = s.data[pair]; t < s.data[pair + 1]; t++) total += x.data[i * k + t] * y.data[t * n + j];
          return total;
        }),
      tolerance: productTolerance(dtype),
      dtype,
    };
  };
  families.blockMaskedMm = (d) => {
    const block = d.pick([32, 64]);
    const [m, k, n] = [d.pick([1, 32, 70]), d.pick([5, 64, 100]), d.pick([3, 65])];
    const lead = d.chance(0.3) ? [2] : [];
    const kind = d.pick(["bool", "float32"] as const);
    const blocks = (r: number, c: number): number[] => [...lead, Math.ceil(r / block), Math.ceil(c / block)];
    const sides = [blocks(m, n), blocks(m, k), blocks(k, n)];
    const use = sides.map(() => d.chance(0.7));
    return {
      what: `blocks of ${block}, ${kind} masks ${use}`,
      inputs: [
        d.input([...lead, m, k], "float32", RANGE),
        d.input([k, n], "float32", RANGE),
        ...sides.filter((_, i) => use[i]).map((s) => d.input(s, kind, RANGE)),
      ],
      run: (mx, [x, y, ...masks]) => {
        const [out, left, right] = use.map((u) => u ? masks.shift()! : null);
        return mx.blockMaskedMm(x, y, block, out, left, right);
      },
      oracle: ([x, y, ...masks]) => {
        const [out, left, right] = use.map((u) => u ? masks.shift()! : undefined);
        const of = (mask: Dense | undefined, at: number[], i: number, j: number): number =>
          mask ? mask.data[ravel(mask.shape, [...at, Math.floor(i / block), Math.floor(j / block)])] : 1;
        return build([...lead, m, n], (at) => {
          const [place, [i, j]] = [at.slice(0, lead.length), at.slice(lead.length)];
          let total = 0;
          for (let t = 0; t < k; t++) {
            total += x.data[ravel(x.shape, [...place, i, t])] * of(left, place, i, t) * y.data[t * n + j] *
              of(right, place, t, j);
          }
          return total * of(out, place, i, j);
        });
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  return families;
}
