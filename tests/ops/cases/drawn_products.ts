/**
 * Families of products: matrices, contractions, norms.
 */

import {
  broadcast,
  build,
  type Dense,
  map,
  matmul,
  ravel,
  read,
  reduce,
  size,
  sum,
} from "../../support/oracles/oracle.ts";
import { FLOATS, productTolerance } from "./case.ts";
import { type Draw, meet } from "./draw.ts";
import { diagonalOf } from "./drawn_movement.ts";
import { elementTolerance, type Families } from "./family.ts";

const RANGE = [-1, 1] as const;

/** An inner size: now and then longer than a tile. */
function inner(d: Draw): number {
  return d.chance(0.3) ? d.pick([33, 64, 100, 257]) : d.int(0, 9);
}

/** Shapes that matmul takes, vectors and batches included. */
function factors(d: Draw): [number[], number[]] {
  const [m, k, n] = [
    d.chance(0.2) ? d.pick([33, 65]) : d.int(1, 9),
    inner(d),
    d.chance(0.2) ? d.pick([40, 67]) : d.int(0, 9),
  ];
  const batch = d.shape(0, 2);
  const [left, right] = [d.narrowed(batch), d.narrowed(batch)];
  return [d.chance(0.15) ? [k] : [...left, m, k], d.chance(0.15) ? [k] : [...right, k, n]];
}

/** matmul with vectors: a row on the left, a column on the right, and that axis goes. */
export function product(x: Dense, y: Dense): Dense {
  const [row, column] = [x.shape.length === 1, y.shape.length === 1];
  const full = matmul(
    row ? { ...x, shape: [1, ...x.shape] } : x,
    column ? { ...y, shape: [...y.shape, 1] } : y,
  );
  const lead = full.shape.slice(0, -2);
  const [m, n] = full.shape.slice(-2);
  return { shape: [...lead, ...(row ? [] : [m]), ...(column ? [] : [n])], data: full.data };
}

/** Sums over letters, one element at a time. */
function contracted(text: string, list: readonly Dense[]): Dense {
  const [left, right] = text.split("->");
  const terms = left.split(",");
  const sizes = new Map<string, number>();
  terms.forEach((term, i) => [...term].forEach((c, a) => sizes.set(c, list[i].shape[a])));
  const summed = [...sizes.keys()].filter((c) => !right.includes(c));
  const loop = summed.map((c) => sizes.get(c)!);
  return build([...right].map((c) => sizes.get(c)!), (at) => {
    let total = 0;
    const all = build(loop, (inside) => {
      const value = (c: string): number => right.includes(c) ? at[right.indexOf(c)] : inside[summed.indexOf(c)];
      return terms.reduce((p, term, i) => p * list[i].data[ravel(list[i].shape, [...term].map(value))], 1);
    });
    all.data.forEach((v) => total += v);
    return total;
  });
}

const EINSUM = [
  "ij,jk->ik",
  "ij,kj->ik",
  "i,j->ij",
  "ij->ji",
  "ii->i",
  "ii->",
  "ij->",
  "bij,bjk->bik",
  "ij,ij->",
  "abc,cd,de->abe",
  "bhqd,bhkd->bhqk",
  "ij,jk,kl->il",
  "a,ab,b->",
  "abcd->dcba",
  "abca->bc",
  "ij,i->j",
] as const;

function norm(v: number[], ord: number | null): number {
  const a = v.map(Math.abs);
  if (ord === null || ord === 2) return Math.sqrt(sum(a.map((x) => x * x)));
  if (ord === Infinity) return Math.max(...a);
  if (ord === -Infinity) return Math.min(...a);
  if (ord === 0) return a.filter((x) => x !== 0).length;
  return sum(a.map((x) => x ** ord)) ** (1 / ord);
}

/** Products. */
export function drawnProducts(): Families {
  const families: Families = {};
  families.hadamardTransform = (d) => {
    const n = 2 ** d.pick([0, 1, 2, 3, 6, 7]);
    const dtype = d.dtype([...FLOATS, "int32"]);
    const scale = d.pick([null, 1, 0.25]);
    const shape = [d.int(1, 4), n];
    const sign = (i: number, j: number): number => {
      let ones = 0;
      for (let both = i & j; both; both >>= 1) ones += both & 1;
      return ones % 2 ? -1 : 1;
    };
    return {
      inputs: [d.input(shape, dtype, RANGE)],
      run: (mx, [x]) => mx.hadamardTransform(x, scale),
      oracle: ([x]) =>
        build(shape, (at) => {
          let total = 0;
          for (let j = 0; j < n; j++) total += sign(at[1], j) * x.data[at[0] * n + j];
          return total * (scale ?? 1 / Math.sqrt(n));
        }),
      tolerance: elementTolerance(dtype === "int32" ? "float32" : dtype),
      dtype: dtype === "int32" ? "float32" : dtype,
      what: `scale ${scale}`,
    };
  };
  families.matmul = (d) => {
    const dtype = d.dtype(FLOATS);
    const other = d.chance(0.15) ? d.dtype(FLOATS) : dtype;
    const result = meet(dtype, other);
    const [a, b] = factors(d);
    const special = [Infinity, NaN, 0];
    return {
      inputs: [d.sprinkled(d.input(a, dtype, RANGE), special), d.sprinkled(d.input(b, other, RANGE), special)],
      run: (mx, [x, y]) => mx.matmul(x, y),
      oracle: ([x, y]) => product(x, y),
      tolerance: dtype === other ? productTolerance(dtype) : 5e-4,
      dtype: result,
    };
  };
  families.addmm = (d) => {
    const [m, k, n] = [d.int(1, 9), inner(d), d.int(1, 40)];
    const [alpha, beta] = [d.pick([1, 0.5, -2]), d.pick([1, 3, -0.5])];
    const c = d.narrowed([m, n]);
    return {
      what: `${alpha} ${beta}`,
      inputs: [d.input(c, "float32", RANGE), d.input([m, k], "float32", RANGE), d.input([k, n], "float32", RANGE)],
      run: (mx, [c, a, b]) => mx.addmm(c, a, b, alpha, beta),
      oracle: ([c, a, b]) => map((p, q) => alpha * p + beta * q, matmul(a, b), c),
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.inner = (d) => {
    const k = inner(d);
    const [a, b] = d.chance(0.15) ? [[], d.shape(0, 2)] : [[...d.shape(0, 2, false), k], [...d.shape(0, 2, false), k]];
    return {
      inputs: [d.input(a, "float32", RANGE), d.input(b, "float32", RANGE)],
      run: (mx, [x, y]) => mx.inner(x, y),
      oracle: ([x, y]) => {
        if (a.length === 0) return map((p, q) => p * q, x, y);
        const [left, right] = [a.slice(0, -1), b.slice(0, -1)];
        return build([...left, ...right], (at) => {
          const [p, q] = [ravel(left, at.slice(0, left.length)), ravel(right, at.slice(left.length))];
          let total = 0;
          for (let i = 0; i < k; i++) total += x.data[p * k + i] * y.data[q * k + i];
          return total;
        });
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.outer = (d) => {
    const dtype = d.dtype([...FLOATS, "int32"] as const);
    return {
      inputs: [d.input(d.shape(0, 2), dtype, [-9, 9]), d.input(d.shape(0, 2), dtype, [-9, 9])],
      run: (mx, [x, y]) => mx.outer(x, y),
      oracle: ([x, y]) => build([x.data.length, y.data.length], ([i, j]) => x.data[i] * y.data[j]),
      tolerance: elementTolerance(dtype),
      dtype,
    };
  };
  families.vecdot = (d) => {
    const shape = d.shape(1, 4, false);
    const axis = d.axis(shape.length);
    const at = (axis + shape.length) % shape.length;
    const own = shape.map((n, i) => i !== at && d.chance(0.2) ? 1 : n);
    return {
      what: `along ${axis}`,
      inputs: [d.input(shape, "float32", RANGE), d.input(own, "float32", RANGE)],
      run: (mx, [x, y]) => mx.vecdot(x, y, axis),
      oracle: ([x, y]) => reduce(map((p, q) => p * q, x, y), [at], false, sum),
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.trace = (d) => {
    const shape = d.shape(2, 4, false);
    const [a, b] = d.shuffled(shape.map((_, i) => i));
    const offset = d.int(-2, 2);
    const dtype = d.dtype(["float32", "int32"] as const);
    return {
      what: `${offset} of ${a} ${b}`,
      inputs: [d.input(shape, dtype, [-9, 9])],
      run: (mx, [x]) => mx.trace(x, offset, a, b),
      oracle: ([x]) => {
        const line = diagonalOf(x, offset, a, b);
        return reduce(line, [line.shape.length - 1], false, sum);
      },
      tolerance: elementTolerance(dtype),
      dtype,
    };
  };
  families.kron = (d) => {
    const [a, b] = [d.shape(1, 3, false), d.shape(1, 3, false)].map((s) => s.map((n) => Math.min(n, 8)));
    return {
      inputs: [d.input(a, "float32", RANGE), d.input(b, "float32", RANGE)],
      run: (mx, [x, y]) => mx.kron(x, y),
      oracle: ([x, y]) => {
        const rank = Math.max(a.length, b.length);
        const wide = (s: readonly number[]): number[] => [...new Array<number>(rank - s.length).fill(1), ...s];
        const [p, q] = [wide(a), wide(b)];
        return build(
          p.map((n, i) => n * q[i]),
          (at) =>
            x.data[ravel(p, at.map((v, i) => Math.floor(v / q[i])))] * y.data[ravel(q, at.map((v, i) => v % q[i]))],
        );
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.tensordot = (d) => {
    const shared = d.shape(0, 2, false);
    const [p, q] = [d.shape(0, 2, false), d.shape(0, 2, false)].map((s) => s.map((n) => Math.min(n, 8)));
    const lists = d.chance(0.5);
    const axes = lists
      ? [shared.map((_, i) => p.length + i), shared.map((_, i) => i - q.length - shared.length)] as const
      : shared.length;
    return {
      what: `${JSON.stringify(axes)}`,
      inputs: [d.input([...p, ...shared], "float32", RANGE), d.input([...shared, ...q], "float32", RANGE)],
      run: (mx, [x, y]) => mx.tensordot(x, y, axes),
      oracle: ([x, y]) => {
        const k = size(shared);
        const flat = matmul({ shape: [size(p), k], data: x.data }, { shape: [k, size(q)], data: y.data });
        return { shape: [...p, ...q], data: flat.data };
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.einsum = (d) => {
    const text = d.pick(EINSUM);
    const sizes = new Map([...text].filter((c) => /[a-z]/.test(c)).map((c) => [c, d.int(1, 5)]));
    const terms = text.split("->")[0].split(",");
    return {
      what: text,
      inputs: terms.map((t) => d.input([...t].map((c) => sizes.get(c)!), "float32", RANGE)),
      run: (mx, list) => mx.einsum(text, ...list),
      oracle: (list) => contracted(text, list),
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families["linalg.norm"] = (d) => {
    const shape = d.shape(1, 4, false);
    const keepdims = d.chance(0.5);
    const form = shape.length > 1 ? d.int(0, 2) : d.int(0, 1);
    const axes = d.shuffled(shape.map((_, i) => i));
    const ord = form === 0
      ? null
      : form === 1
      ? d.pick([0, 1, 2, 3, 0.5, Infinity, -Infinity])
      : d.pick(["fro", 1, -1, Infinity, -Infinity] as const);
    const axis = form === 0 ? d.pick([null, axes[0]]) : form === 1 ? axes[0] : axes.slice(0, 2);
    return {
      what: `${ord} over ${axis}${keepdims ? " keepdims" : ""}`,
      inputs: [d.input(shape, "float32", [-3, 3])],
      run: (mx, [x]) => mx.linalg.norm(x, ord, axis, keepdims),
      oracle: ([x]) => {
        if (form === 0) {
          return reduce(
            x,
            axis === null ? shape.map((_, i) => i) : [axis as number],
            keepdims,
            (v) => norm(v, null),
          );
        }
        if (form === 1) return reduce(x, [axis as number], keepdims, (v) => norm(v, ord as number));
        const [row, column] = axis as number[];
        if (ord === "fro") return reduce(x, [row, column], keepdims, (v) => norm(v, null));
        const [inside, outside] = Math.abs(ord as number) === 1 ? [row, column] : [column, row];
        const sums = reduce(x, [inside], true, (v) => norm(v, 1));
        const most = reduce(sums, [outside], true, (v) => (ord as number) > 0 ? Math.max(...v) : Math.min(...v));
        return keepdims ? most : { ...most, shape: most.shape.filter((_, i) => i !== row && i !== column) };
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families["linalg.cross"] = (d) => {
    const shape = d.shape(1, 3, false);
    const axis = d.axis(shape.length);
    const at = (axis + shape.length) % shape.length;
    const of = (n: number): number[] => shape.map((s, i) => i === at ? n : s);
    const [a, b] = [of(d.pick([2, 3, 3])), of(d.pick([2, 3, 3]))];
    return {
      what: `along ${axis}`,
      inputs: [d.input(a, "float32", RANGE), d.input(b, "float32", RANGE)],
      run: (mx, [x, y]) => mx.linalg.cross(x, y, axis),
      oracle: ([x, y]) => {
        const part = (v: Dense, p: readonly number[], i: number): number =>
          i < v.shape[at] ? read(v, p.map((q, k) => k === at ? i : q)) : 0;
        return build(broadcast(of(3), of(3)), (p) => {
          const [i, j] = [(p[at] + 1) % 3, (p[at] + 2) % 3];
          return part(x, p, i) * part(y, p, j) - part(x, p, j) * part(y, p, i);
        });
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  return families;
}
