/**
 * Families of functions that move elements without looking at them: shapes, joins, pieces, views. All exact, all dtypes.
 */

import { broadcast, build, type Dense, ravel, read, size } from "../../support/oracles/oracle.ts";
import { ALL_TYPES, type Draw, meet, stored } from "./draw.ts";
import type { Drawn, Families, Family } from "./family.ts";
import type { Input, Library, Tensor } from "./case.ts";

/** A row over one array of any dtype. */
function one(
  d: Draw,
  shape: readonly number[],
  what: string,
  run: (mx: Library, x: Tensor) => Tensor | Tensor[],
  oracle: (x: Dense) => Dense | Dense[],
): Drawn {
  const dtype = d.dtype(ALL_TYPES);
  return {
    what,
    inputs: [d.input(shape, dtype, "special")],
    run: (mx, [x]) => run(mx, x),
    oracle: ([x]) => oracle(x),
    tolerance: 0,
    dtype,
  };
}

const reshaped = (x: Dense, shape: readonly number[]): Dense => ({ shape, data: x.data });

/** Sizes whose product is `count`. */
function factors(d: Draw, count: number): number[] {
  if (count === 0) return d.shuffled([0, d.int(1, 3), d.int(1, 4)]).slice(0, 3);
  const shape: number[] = [];
  for (let rest = count; rest > 1;) {
    const found = Array.from({ length: rest }, (_, i) => i + 1).filter((f) => f > 1 && rest % f === 0);
    shape.push(d.pick(found));
    rest /= shape[shape.length - 1];
  }
  while (d.chance(0.3)) shape.splice(d.int(0, shape.length), 0, 1);
  return shape;
}

function permutedBy(x: Dense, order: readonly number[]): Dense {
  return build(order.map((a) => x.shape[a]), (at) => {
    const from = new Array<number>(at.length);
    order.forEach((a, i) => from[a] = at[i]);
    return x.data[ravel(x.shape, from)];
  });
}

const positive = (a: number, rank: number): number => a < 0 ? a + rank : a;

function cut(x: Dense, axis: number, from: number, to: number): Dense {
  const shape = x.shape.map((n, i) => i === axis ? Math.max(0, to - from) : n);
  return build(shape, (at) => x.data[ravel(x.shape, at.map((v, i) => i === axis ? v + from : v))]);
}

function joined(list: readonly Dense[], axis: number): Dense {
  const shape = list[0].shape.map((n, i) => i === axis ? list.reduce((s, x) => s + x.shape[axis], 0) : n);
  return build(shape, (at) => {
    let [which, left] = [0, at[axis]];
    while (left >= list[which].shape[axis]) left -= list[which++].shape[axis];
    return list[which].data[ravel(list[which].shape, at.map((v, i) => i === axis ? left : v))];
  });
}

const SHAPES: Record<string, Family> = {
  reshape: (d) => {
    const shape = d.shape();
    const to = factors(d, size(shape));
    const open = size(shape) > 0 && to.length > 0 && d.chance(0.4) ? d.int(0, to.length - 1) : -1;
    const asked = to.map((n, i) => i === open ? -1 : n);
    return one(d, shape, `to (${asked})`, (mx, x) => mx.reshape(x, asked), (x) => reshaped(x, to));
  },
  flatten: (d) => {
    const shape = d.shape(1);
    const from = d.int(0, shape.length - 1);
    const to = d.int(from, shape.length - 1);
    const end = d.chance(0.5) ? to - shape.length : to;
    const flat = [...shape.slice(0, from), size(shape.slice(from, to + 1)), ...shape.slice(to + 1)];
    return one(d, shape, `${from} to ${end}`, (mx, x) => mx.flatten(x, from, end), (x) => reshaped(x, flat));
  },
  unflatten: (d) => {
    const shape = d.shape(1, 4, false);
    const axis = d.axis(shape.length);
    const at = positive(axis, shape.length);
    const sizes = factors(d, shape[at]);
    if (sizes.length === 0) sizes.push(1);
    const to = [...shape.slice(0, at), ...sizes, ...shape.slice(at + 1)];
    return one(d, shape, `${axis} to (${sizes})`, (mx, x) => mx.unflatten(x, axis, sizes), (x) => reshaped(x, to));
  },
  squeeze: (d) => {
    const shape = d.shape(0, 5).map((n) => d.chance(0.5) ? 1 : n);
    const ones = shape.flatMap((n, i) => n === 1 ? [i] : []);
    const some = d.shuffled(ones).slice(0, d.int(0, ones.length));
    const axis = d.chance(0.3) ? undefined : some.map((a) => d.chance(0.5) ? a - shape.length : a);
    const gone = axis ? some : ones;
    const to = shape.filter((_, i) => !gone.includes(i));
    return one(d, shape, `${axis}`, (mx, x) => mx.squeeze(x, axis), (x) => reshaped(x, to));
  },
  expandDims: (d) => {
    const shape = d.shape(0, 4);
    const rank = shape.length + d.int(1, 2);
    const axes = d.shuffled(Array.from({ length: rank }, (_, i) => i)).slice(0, rank - shape.length);
    const left = [...shape];
    const to = Array.from({ length: rank }, (_, i) => axes.includes(i) ? 1 : left.shift()!);
    const asked = axes.map((a) => d.chance(0.5) ? a - rank : a);
    const arg = asked.length === 1 && d.chance(0.5) ? asked[0] : asked;
    return one(d, shape, `at ${arg}`, (mx, x) => mx.expandDims(x, arg), (x) => reshaped(x, to));
  },
  atleast1d: (d) => {
    const shape = d.shape(0, 3);
    return one(d, shape, "", (mx, x) => mx.atleast1d(x), (x) => reshaped(x, shape.length ? shape : [1]));
  },
  atleast2d: (d) => {
    const shape = d.shape(0, 3);
    const to = shape.length >= 2 ? shape : [1, ...shape, 1].slice(0, 2);
    return one(d, shape, "", (mx, x) => mx.atleast2d(x), (x) => reshaped(x, to));
  },
  atleast3d: (d) => {
    const shape = d.shape(0, 4);
    const to = [[1, 1, 1], [1, ...shape, 1], [...shape, 1]][shape.length] ?? shape;
    return one(d, shape, "", (mx, x) => mx.atleast3d(x), (x) => reshaped(x, to));
  },
  contiguous: (d) => one(d, d.shape(), "", (mx, x) => mx.contiguous(x), (x) => x),
};

const ORDERS: Record<string, Family> = {
  swapaxes: (d) => {
    const shape = d.shape(1);
    const [a, b] = [d.axis(shape.length), d.axis(shape.length)];
    const order = shape.map((_, i) => i);
    const [p, q] = [positive(a, shape.length), positive(b, shape.length)];
    [order[p], order[q]] = [order[q], order[p]];
    return one(d, shape, `${a} ${b}`, (mx, x) => mx.swapaxes(x, a, b), (x) => permutedBy(x, order));
  },
  moveaxis: (d) => {
    const shape = d.shape(1);
    const [from, to] = [d.axis(shape.length), d.axis(shape.length)];
    const order = shape.map((_, i) => i).filter((i) => i !== positive(from, shape.length));
    order.splice(positive(to, shape.length), 0, positive(from, shape.length));
    return one(d, shape, `${from} ${to}`, (mx, x) => mx.moveaxis(x, from, to), (x) => permutedBy(x, order));
  },
  flip: (d) => {
    const shape = d.shape();
    const axes = d.axes(shape.length);
    const axis = d.pick([undefined, null, axes]);
    const on = (axis ?? shape.map((_, i) => i)).map((a) => positive(a, shape.length));
    return one(
      d,
      shape,
      `${axis}`,
      (mx, x) => mx.flip(x, axis),
      (x) => build(shape, (at) => x.data[ravel(shape, at.map((v, i) => on.includes(i) ? shape[i] - 1 - v : v))]),
    );
  },
  roll: (d) => {
    const shape = d.shape(1, 4);
    const axes = d.pick([null, d.axes(shape.length)]);
    const shift = d.int(-9, 9);
    const shifts = axes && d.chance(0.5) ? axes.map(() => d.int(-9, 9)) : undefined;
    const what = `${shifts ?? shift} along ${axes}`;
    return one(d, shape, what, (mx, x) => mx.roll(x, shifts ?? shift, axes), (x) => {
      const flat = { shape: [x.data.length], data: x.data };
      const of = axes === null ? flat : x;
      const by = new Map((axes ?? [0]).map((a, i) => [positive(a, of.shape.length), shifts?.[i] ?? shift]));
      const turned = build(of.shape, (at) =>
        of.data[
          ravel(of.shape, at.map((v, i) => (((v - (by.get(i) ?? 0)) % of.shape[i]) + of.shape[i]) % of.shape[i]))
        ]);
      return reshaped(turned, shape);
    });
  },
};

for (const name of ["transpose", "permuteDims"] as const) {
  ORDERS[name] = (d) => {
    const shape = d.shape();
    const order = d.shuffled(shape.map((_, i) => i));
    const axes = d.chance(0.3) ? d.pick([undefined, null]) : order.map((a) => d.chance(0.3) ? a - shape.length : a);
    const by = axes ? order : shape.map((_, i) => shape.length - 1 - i);
    return one(d, shape, `${axes}`, (mx, x) => mx[name](x, axes), (x) => permutedBy(x, by));
  };
}

/** Several arrays that are alike but along one axis. */
function several(d: Draw, least: number): { axis: number; at: number; inputs: Input[] } {
  const shape = d.shape(1, 4);
  const axis = d.axis(shape.length);
  const at = positive(axis, shape.length);
  const dtype = d.dtype(ALL_TYPES);
  const inputs = Array.from({ length: d.int(least, 4) }, () => {
    const own = shape.map((n, i) => i === at ? d.int(0, 5) : n);
    return d.input(own, d.chance(0.1) ? d.dtype(ALL_TYPES) : dtype, "special");
  });
  return { axis, at, inputs };
}

const JOINS: Record<string, Family> = {
  concatenate: (d) => {
    const { axis, at, inputs } = several(d, 1);
    const result = inputs.map((i) => i.dtype).reduce(meet);
    const flat = d.chance(0.15);
    const cast = (x: Dense): Dense => ({ ...x, data: x.data.map((v) => stored(result, v)) });
    return {
      what: `along ${flat ? null : axis}`,
      inputs,
      run: (mx, list) => mx.concatenate(list, flat ? null : axis),
      oracle: (list) =>
        flat ? joined(list.map(cast).map((x) => reshaped(x, [x.data.length])), 0) : joined(list.map(cast), at),
      tolerance: 0,
      dtype: result,
      classes: "values",
    };
  },
  stack: (d) => {
    const shape = d.shape(0, 4);
    const dtype = d.dtype(ALL_TYPES);
    const inputs = Array.from({ length: d.int(1, 4) }, () => d.input(shape, dtype, "special"));
    const axis = d.axis(shape.length + 1);
    const at = positive(axis, shape.length + 1);
    return {
      what: `along ${axis}`,
      inputs,
      run: (mx, list) => mx.stack(list, axis),
      oracle: (list) => joined(list.map((x) => reshaped(x, shape.toSpliced(at, 0, 1))), at),
      tolerance: 0,
      dtype,
    };
  },
  unstack: (d) => {
    const shape = d.shape(1, 4, false);
    const axis = d.axis(shape.length);
    const at = positive(axis, shape.length);
    if (shape[at] > 9) shape[at] = 3;
    return one(
      d,
      shape,
      `along ${axis}`,
      (mx, x) => mx.unstack(x, axis),
      (x) => Array.from({ length: shape[at] }, (_, i) => reshaped(cut(x, at, i, i + 1), shape.toSpliced(at, 1))),
    );
  },
  split: (d) => {
    const shape = d.shape(1, 4);
    const axis = d.axis(shape.length);
    const at = positive(axis, shape.length);
    const n = shape[at];
    const parts = d.pick([1, 2, 3, 4].filter((p) => n % p === 0));
    const where = Array.from({ length: d.int(0, 3) }, () => d.int(0, n + 1)).sort((a, b) => a - b);
    const form = d.chance(0.5) ? parts : where;
    const edges = typeof form === "number"
      ? Array.from({ length: parts + 1 }, (_, i) => i * n / parts)
      : [0, ...where.map((w) => Math.min(w, n)), n];
    return one(
      d,
      shape,
      `${form} along ${axis}`,
      (mx, x) => mx.split(x, form, axis),
      (x) => edges.slice(1).map((end, i) => cut(x, at, edges[i], end)),
    );
  },
  repeat: (d) => {
    const shape = d.shape(0, 4);
    const flat = shape.length === 0 || d.chance(0.3);
    const axis = flat ? null : d.axis(shape.length);
    const times = d.int(0, 3);
    return one(d, shape, `${times} along ${axis}`, (mx, x) => mx.repeat(x, times, axis), (x) => {
      const of = flat ? reshaped(x, [x.data.length]) : x;
      const at = flat ? 0 : positive(axis!, shape.length);
      const to = of.shape.map((n, i) => i === at ? n * times : n);
      return build(to, (p) => of.data[ravel(of.shape, p.map((v, i) => i === at ? Math.floor(v / times) : v))]);
    });
  },
  tile: (d) => {
    const shape = d.shape(0, 3);
    const reps = Array.from({ length: d.int(0, 4) }, () => d.int(0, 3));
    const number = d.chance(0.2);
    const list = number ? [2] : reps;
    return one(d, shape, `${number ? 2 : `(${reps})`}`, (mx, x) => mx.tile(x, number ? 2 : reps), (x) => {
      const rank = Math.max(shape.length, list.length);
      const own = [...new Array<number>(rank - shape.length).fill(1), ...shape];
      const times = [...new Array<number>(rank - list.length).fill(1), ...list];
      return build(own.map((n, i) => n * times[i]), (at) => x.data[ravel(own, at.map((v, i) => v % own[i]))]);
    });
  },
  pad: (d) => {
    const shape = d.shape(1, 3, false);
    const form = d.int(0, 2);
    const pairs = shape.map((): [number, number] => [d.int(0, 3), d.int(0, 3)]);
    const [a, b] = pairs[0];
    const width = form === 0 ? a : form === 1 ? [a, b] : pairs;
    const by = pairs.map((pair): [number, number] => form === 0 ? [a, a] : form === 1 ? [a, b] : pair);
    const mode = d.pick(["constant", "constant", "edge", "reflect", "symmetric"] as const);
    const fill = d.int(0, 1);
    return one(
      d,
      shape,
      `${JSON.stringify(width)} ${mode} ${fill}`,
      (mx, x) => mx.pad(x, width, mode, mode === "constant" ? fill : undefined),
      (x) =>
        build(shape.map((n, i) => n + by[i][0] + by[i][1]), (at) => {
          const from = at.map((v, i) => v - by[i][0]);
          const inside = from.every((v, i) => v >= 0 && v < shape[i]);
          if (!inside && mode === "constant") return fill;
          return x.data[ravel(shape, from.map((v, i) => mirrored(v, shape[i], mode)))];
        }),
    );
  },
};

/** The place in 0 … n-1 from which place v is filled: mirrored at the ends as often as it takes. */
function mirrored(v: number, n: number, mode: string): number {
  if (mode === "edge" || n === 1) return Math.min(n - 1, Math.max(0, v));
  const turn = mode === "symmetric" ? 1 : 0;
  while (v < 0 || v >= n) v = v < 0 ? -v - turn : 2 * (n - 1) - v + turn;
  return v;
}

const VIEWS: Record<string, Family> = {
  broadcastTo: (d) => {
    const shape = d.shape(0, 4);
    const own = d.narrowed(shape);
    return one(d, own, `to (${shape})`, (mx, x) => mx.broadcastTo(x, shape), (x) => build(shape, (at) => read(x, at)));
  },
  broadcastArrays: (d) => {
    const shape = d.shape(0, 4);
    const inputs = Array.from({ length: d.int(1, 3) }, () => d.input(d.narrowed(shape), d.dtype(ALL_TYPES), "special"));
    const to = broadcast(...inputs.map((i) => i.shape));
    return {
      inputs,
      run: (mx, list) => mx.broadcastArrays(...list),
      oracle: (list) => list.map((x) => build(to, (at) => read(x, at))),
      tolerance: 0,
    };
  },
  broadcastShapes: (d) => {
    const shape = d.shape();
    const shapes = Array.from({ length: d.int(1, 4) }, () => d.narrowed(shape));
    const to = broadcast(...shapes);
    return {
      what: shapes.map((s) => `(${s})`).join(" "),
      inputs: [],
      run: (mx) => mx.array([...mx.broadcastShapes(...shapes), -1]),
      oracle: () => ({ shape: [to.length + 1], data: Float64Array.from([...to, -1]) }),
      tolerance: 0,
    };
  },
  asStrided: (d) => {
    const shape = d.shape(1, 3, false);
    const count = size(shape);
    const to = d.shape(0, 3, false).map((n) => Math.min(n, 5));
    const room = Math.floor((count - 1) / Math.max(1, to.length));
    const strides = to.map((n) => n > 1 ? d.int(0, Math.floor(room / (n - 1))) * d.pick([1, -1]) : d.int(-2, 2));
    const low = to.reduce((s, n, i) => s + Math.min(0, (n - 1) * strides[i]), 0);
    const high = to.reduce((s, n, i) => s + Math.max(0, (n - 1) * strides[i]), 0);
    const offset = d.int(-low, count - 1 - high);
    return one(
      d,
      shape,
      `(${to}) by (${strides}) from ${offset}`,
      (mx, x) => mx.asStrided(x, to, strides, offset),
      (x) => build(to, (at) => x.data[at.reduce((s, v, i) => s + v * strides[i], offset)]),
    );
  },
  diagonal: (d) => {
    const shape = d.shape(2, 4);
    const [a, b] = d.shuffled(shape.map((_, i) => i));
    const offset = d.int(-3, 3);
    const [p, q] = [a, b].map((i) => d.chance(0.5) ? i - shape.length : i);
    return one(
      d,
      shape,
      `${offset} of ${p} ${q}`,
      (mx, x) => mx.diagonal(x, offset, p, q),
      (x) => diagonalOf(x, offset, a, b),
    );
  },
  diag: (d) => {
    const k = d.int(-3, 3);
    if (d.chance(0.4)) {
      const shape = [d.int(1, 6), d.int(1, 6)];
      return one(d, shape, `${k}`, (mx, x) => mx.diag(x, k), (x) => diagonalOf(x, k, 0, 1));
    }
    const n = d.int(0, 6);
    const side = n + Math.abs(k);
    return one(
      d,
      [n],
      `${k}`,
      (mx, x) => mx.diag(x, k),
      (x) => build([side, side], ([i, j]) => j - i === k ? x.data[Math.min(i, j)] : 0),
    );
  },
};

/** A diagonal of two axes, which becomes the last axis. */
export function diagonalOf(x: Dense, offset: number, a: number, b: number): Dense {
  const count = Math.max(0, Math.min(x.shape[a] - Math.max(0, -offset), x.shape[b] - Math.max(0, offset)));
  const rest = x.shape.map((_, i) => i).filter((i) => i !== a && i !== b);
  return build([...rest.map((i) => x.shape[i]), count], (at) => {
    const from = new Array<number>(x.shape.length);
    rest.forEach((axis, i) => from[axis] = at[i]);
    from[a] = at[at.length - 1] + Math.max(0, -offset);
    from[b] = at[at.length - 1] + Math.max(0, offset);
    return x.data[ravel(x.shape, from)];
  });
}

for (const name of ["tril", "triu"] as const) {
  VIEWS[name] = (d) => {
    const shape = d.shape(2, 4);
    const k = d.int(-4, 4);
    return one(d, shape, `${k}`, (mx, x) => mx[name](x, k), (x) =>
      build(shape, (at) => {
        const [i, j] = at.slice(-2);
        return (name === "tril" ? j - i <= k : j - i >= k) ? x.data[ravel(shape, at)] : 0;
      }));
  };
}

/** Functions that move elements. */
export function drawnMovement(): Families {
  return {
    ...SHAPES,
    ...ORDERS,
    ...JOINS,
    ...VIEWS,
    ...Object.fromEntries(["matrixTranspose", "Tensor.mT"].map((name): [string, Family] => [name, (d) => {
      const shape = d.shape(2, 4);
      const axes = shape.map((_, i) => i);
      const order = [...axes.slice(0, -2), shape.length - 1, shape.length - 2];
      return one(
        d,
        shape,
        "",
        (mx, x) => name === "Tensor.mT" ? x.mT : mx.matrixTranspose(x),
        (x) => permutedBy(x, order),
      );
    }])),
    "Tensor.T": (d) => {
      const shape = d.shape();
      return one(d, shape, "", (_mx, x) => x.T, (x) => permutedBy(x, shape.map((_, i) => shape.length - 1 - i)));
    },
  };
}
