/**
 * Rows of the case table: reductions, scans, softmax, sorting.
 */

import { largest, logsumexp, reduce, rows, sum } from "../../support/oracles/oracle.ts";
import { type Case, EXACT, FLOATS, type Input, type Tensor } from "./case.ts";

const REDUCE: readonly (readonly [string, (v: number[]) => number])[] = [
  ["sum", sum],
  ["prod", (v) => v.reduce((a, b) => a * b, 1)],
  ["max", largest],
  ["min", (v) => -largest(v.map((x) => -x))],
  ["mean", (v) => sum(v) / v.length],
  ["variance", (v) => sum(v.map((x) => (x - sum(v) / v.length) ** 2)) / v.length],
  ["logsumexp", logsumexp],
  ["argmax", (v) => v.indexOf(largest(v))],
  ["argmin", (v) => v.indexOf(-largest(v.map((x) => -x)))],
  ["all", (v) => Number(v.every((x) => x !== 0))],
  ["any", (v) => Number(v.some((x) => x !== 0))],
];

type AxisOp = (x: Tensor, axis?: number | number[], keepdims?: boolean) => Tensor;

/** Rows of reductions, scans, softmax and sorting. */
export function* reductions(): Generator<Case> {
  const shapes: readonly (readonly [readonly number[], number | number[]])[] = [
    [[7], 0],
    [[3, 257], 1],
    [[3, 257], 0],
    [[2, 3, 4, 5], [1, 3]],
    [[2, 3, 4, 5], [0, 2]],
    [[2, 3, 2, 3, 2, 2], [0, 2, 4]], // three runs of axes inside, more than kernels walk
    [[2, 3, 2, 3, 2, 2, 2, 3], [1, 3, 5]], // and four outside
    [[70, 263], 0], // more columns than are folded together, more rows than a block
    [[3, 9, 5, 7], [1, 2]], // columns under outer rows
    [[5, 1], -1],
  ];
  for (const [op, f] of REDUCE) {
    for (const [shape, axis] of shapes) {
      if (op.startsWith("arg") && Array.isArray(axis)) continue;
      for (const dtype of ["float32", "bfloat16", "int32"] as const) {
        const index = op.startsWith("arg") || op === "all" || op === "any";
        if (dtype === "int32" && ["mean", "variance", "logsumexp", "prod"].includes(op)) continue;
        if (dtype === "bfloat16" && shape.length > 2) continue;
        // Products of many numbers leave float32's range unless they are near 1.
        const [low, high] = op === "prod" ? [0.9, 1.1] : [-1, op === "all" ? 9 : 1.5];
        const inputs: Input[] = [{ shape, dtype, low, high }];
        const axes = [axis].flat().map((a) => a < 0 ? a + shape.length : a);
        yield {
          op,
          what: `${dtype} (${shape}) over ${axis}`,
          inputs,
          run: (mx, [x]) => (mx as unknown as Record<string, AxisOp>)[op](x, axis),
          oracle: ([x]) => reduce(x, axes, false, f),
          // 16-bit sums are rounded once, when they are stored.
          tolerance: index || dtype === "int32" ? EXACT : dtype === "float32" ? 1e-7 : 2e-5,
        };
      }
    }
  }
  const big: Input[] = [{ shape: [2, 200003], dtype: "float32", low: -1, high: 1.5 }];
  yield {
    op: "sum",
    what: "two stages",
    inputs: big,
    run: (mx, [x]) => mx.sum(x, 1),
    oracle: ([x]) => reduce(x, [1], false, sum),
    tolerance: 1e-9,
  };
  yield {
    op: "max",
    what: "two stages",
    inputs: big,
    run: (mx, [x]) => mx.max(x, 1),
    oracle: ([x]) => reduce(x, [1], false, largest),
    tolerance: EXACT,
  };
  yield {
    op: "argmax",
    what: "200003 columns",
    inputs: big,
    run: (mx, [x]) => mx.argmax(x, 1),
    oracle: ([x]) => reduce(x, [1], false, (v) => v.indexOf(largest(v))),
    tolerance: EXACT,
  };
  yield {
    op: "argmin",
    what: "the first of equals in 70001 numbers",
    inputs: [{ shape: [70001], dtype: "int32", low: 0, high: 9 }],
    run: (mx, [x]) => mx.argmin(x),
    oracle: ([x]) => reduce(x, [0], false, (v) => v.indexOf(Math.min(...v.slice(0, 1000)))),
    tolerance: EXACT,
  };
  for (const [shape, axis] of [[[900, 5], 0], [[2, 700, 36], 1], [[3000, 130], 0]] as const) {
    yield {
      op: "sum",
      what: `(${shape}) over ${axis} in parts`,
      inputs: [{ shape, dtype: "float32", low: -1, high: 1.5 }],
      run: (mx, [x]) => mx.sum(x, axis),
      oracle: ([x]) => reduce(x, [axis], false, sum),
      tolerance: 1e-9,
    };
  }
  const softmax = (v: number[]): number[] => {
    const total = logsumexp(v);
    return v.map((x) => Math.exp(x - total));
  };
  for (const dtype of FLOATS) {
    for (const [shape, axis] of [[[3, 257], -1], [[4, 5, 6], 1], [[1, 1], -1], [[2, 3000], 1]] as const) {
      const inputs: Input[] = [{ shape, dtype, low: -9, high: 9 }];
      const at = axis < 0 ? axis + shape.length : axis;
      yield {
        op: "softmax",
        what: `${dtype} (${shape})`,
        inputs,
        run: (mx, [x]) => mx.softmax(x, axis),
        oracle: ([x]) => rows(x, at, softmax),
        tolerance: dtype === "float32" ? 1e-7 : 2e-5,
      };
    }
  }
  for (const [axis, shape] of [[0, [5]], [1, [3, 300]], [0, [300, 3]], [0, [1025]], [1, [3, 10001]]] as const) {
    const inputs: Input[] = [{ shape, dtype: "float32", low: -1, high: 1 }];
    const scan = (v: number[]): number[] => {
      let total = 0;
      return v.map((x) => total += x);
    };
    yield {
      op: "cumsum",
      what: `(${shape})`,
      inputs,
      run: (mx, [x]) => mx.cumsum(x, axis),
      oracle: ([x]) => rows(x, axis, scan),
      tolerance: 1e-7,
    };
    yield {
      op: "cumsum",
      what: `(${shape}) reverse exclusive`,
      inputs,
      run: (mx, [x]) => mx.cumsum(x, axis, { reverse: true, inclusive: false }),
      oracle: ([x]) => rows(x, axis, (v) => scan(v.slice(1).reverse()).reverse().concat(0)),
      tolerance: 1e-7,
    };
  }
  const sorted = [
    ...[[1], [2, 7], [3, 1025], [2, 3, 64], [513], [2, 5000]].map((shape) => [shape, "float32"] as const),
    ...(["float16", "bfloat16", "int32", "uint32", "int8"] as const).map((dtype) => [[2, 2049], dtype] as const),
  ];
  for (const [shape, dtype] of sorted) {
    const inputs: Input[] = [{ shape, dtype, low: dtype === "uint32" ? 0 : -4, high: dtype === "int8" ? 100 : 4 }];
    const last = shape.length - 1;
    const order = (v: number[]): number[] => v.map((_, i) => i).sort((a, b) => v[a] - v[b] || a - b);
    yield {
      op: "sort",
      what: `${dtype} (${shape})`,
      inputs,
      run: (mx, [x]) => mx.sort(x),
      oracle: ([x]) => rows(x, last, (v) => [...v].sort((a, b) => a - b)),
      tolerance: EXACT,
    };
    yield {
      op: "argsort",
      what: `${dtype} (${shape})`,
      inputs,
      run: (mx, [x]) => mx.argsort(x),
      oracle: ([x]) => rows(x, last, order),
      tolerance: EXACT,
    };
  }
}
