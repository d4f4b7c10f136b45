/**
 * Rows of the case table: ops that move elements: views, joins, gather and scatter.
 */

import { build, type Dense, read, transpose } from "../../support/oracles/oracle.ts";
import { type Case, EXACT, type Input } from "./case.ts";

/** Rows of ops that move elements. */
export function* movement(): Generator<Case> {
  const x: Input[] = [{ shape: [4, 5, 6], dtype: "float32" }];
  const at = (f: (at: number[], x: Dense) => number, shape: readonly number[]) => ([x]: Dense[]): Dense =>
    build(shape, (i) => f(i, x));
  yield {
    op: "transpose",
    what: "then reshape copies",
    inputs: x,
    run: (mx, [x]) => mx.reshape(mx.transpose(x, [2, 0, 1]), [6, 20]),
    oracle: ([x]) => ({ ...transpose(x, [2, 0, 1]), shape: [6, 20] }),
    tolerance: EXACT,
  };
  yield {
    op: "index",
    what: "negative step",
    inputs: x,
    run: (mx, [x]) => x.index(mx.Slice(null, null, -1), 2, mx.Slice(1, null, 2)),
    oracle: at(([i, j], x) => read(x, [3 - i, 2, 1 + 2 * j]), [4, 3]),
    tolerance: EXACT,
  };
  yield {
    op: "index",
    what: "ellipsis and new axis",
    inputs: x,
    run: (_mx, [x]) => x.index(null, "...", -1),
    oracle: at(([, i, j], x) => read(x, [i, j, 5]), [1, 4, 5]),
    tolerance: EXACT,
  };
  yield {
    op: "concatenate",
    what: "three along 1",
    inputs: [x[0], { shape: [4, 0, 6], dtype: "float32" }, {
      shape: [4, 2, 6],
      dtype: "float32",
      layout: "transposed",
    }],
    run: (mx, list) => mx.concatenate(list, 1),
    oracle: ([a, , c]) => build([4, 7, 6], ([i, j, k]) => j < 5 ? read(a, [i, j, k]) : read(c, [i, j - 5, k])),
    tolerance: EXACT,
  };
  yield {
    op: "stack",
    what: "along 0",
    inputs: [x[0], x[0]],
    run: (mx, list) => mx.stack(list, 0),
    oracle: ([a, b]) => build([2, 4, 5, 6], ([s, ...i]) => read(s ? b : a, i)),
    tolerance: EXACT,
  };
  yield {
    op: "broadcastTo",
    what: "materialised",
    inputs: [{ shape: [4, 1], dtype: "float32" }],
    run: (mx, [x]) => mx.contiguous(mx.broadcastTo(x, [3, 4, 5])),
    oracle: at(([, i], x) => x.data[i], [3, 4, 5]),
    tolerance: EXACT,
  };
  yield {
    op: "repeat",
    what: "along 1",
    inputs: x,
    run: (mx, [x]) => mx.repeat(x, 3, 1),
    oracle: at(([i, j, k], x) => read(x, [i, Math.floor(j / 3), k]), [4, 15, 6]),
    tolerance: EXACT,
  };
  yield {
    op: "tile",
    what: "(2, 1)",
    inputs: [{ shape: [3, 2], dtype: "float32" }],
    run: (mx, [x]) => mx.tile(x, [2, 1]),
    oracle: at(([i, j], x) => read(x, [i % 3, j]), [6, 2]),
    tolerance: EXACT,
  };
  yield {
    op: "pad",
    what: "one side",
    inputs: [{ shape: [3, 2], dtype: "float32" }],
    run: (mx, [x]) => mx.pad(x, [[1, 0], [0, 2]]),
    oracle: at(([i, j], x) => i >= 1 && j < 2 ? read(x, [i - 1, j]) : 0, [4, 4]),
    tolerance: EXACT,
  };
  for (const dtype of ["uint8", "float16", "float32", "int32"] as const) {
    for (const inner of [1, 3, 8]) {
      const inputs: Input[] = [{ shape: [9, inner], dtype, low: 0, high: 50 }, {
        shape: [2, 5],
        dtype: "int32",
        low: -9,
        high: 9,
      }];
      yield {
        op: "take",
        what: `${dtype} rows of ${inner}`,
        inputs,
        run: (mx, [x, i]) => mx.take(x, i, 0),
        oracle: ([x, i]) => build([2, 5, inner], ([a, b, c]) => read(x, [(read(i, [a, b]) + 9) % 9, c])),
        tolerance: EXACT,
      };
    }
  }
  const along: Input[] = [{ shape: [3, 7, 2], dtype: "float32" }, {
    shape: [3, 4, 2],
    dtype: "int32",
    low: 0,
    high: 7,
  }];
  yield {
    op: "takeAlongAxis",
    what: "axis 1",
    inputs: along,
    run: (mx, [x, i]) => mx.takeAlongAxis(x, i, 1),
    oracle: ([x, i]) => build([3, 4, 2], ([a, b, c]) => read(x, [a, read(i, [a, b, c]), c])),
    tolerance: EXACT,
  };
  const unique = [4, 0, 6];
  yield {
    op: "putAlongAxis",
    what: "axis 1",
    inputs: [{ shape: [2, 7], dtype: "float32" }, { shape: [2, 3], dtype: "float32" }],
    run: (mx, [x, v]) => mx.putAlongAxis(x, mx.array([unique, unique], mx.int32), v, 1),
    oracle: ([x, v]) =>
      build([2, 7], ([i, j]) => unique.includes(j) ? read(v, [i, unique.indexOf(j)]) : read(x, [i, j])),
    tolerance: EXACT,
  };
  // As many as are sorted on a GPU; each place twice, so that the later half counts.
  const permuted = Array.from({ length: 300 }, (_, i) => (7 * i + 3) % 150);
  yield {
    op: "putAlongAxis",
    what: "a list of many indices",
    inputs: [{ shape: [160], dtype: "float32" }, { shape: [300], dtype: "float32" }],
    run: (mx, [x, v]) => mx.putAlongAxis(x, mx.array(permuted, mx.int32), v, 0),
    oracle: ([x, v]) => build([160], ([i]) => i < 150 ? read(v, [permuted.lastIndexOf(i)]) : read(x, [i])),
    tolerance: EXACT,
  };
  yield {
    op: "at.add",
    what: "repeated indices add up",
    inputs: [{ shape: [5, 3], dtype: "float32" }, { shape: [4, 3], dtype: "float32" }],
    run: (mx, [x, v]) => x.at(mx.array([1, 3, 1, 1], mx.int32)).add(v),
    oracle: ([x, v]) =>
      build(
        [5, 3],
        ([i, j]) => read(x, [i, j]) + [1, 3, 1, 1].reduce((s, at, r) => s + (at === i ? read(v, [r, j]) : 0), 0),
      ),
    tolerance: 1e-12,
  };
  yield {
    op: "sliceUpdate",
    what: "start from an array, clamped",
    inputs: [{ shape: [4, 6], dtype: "float32" }, { shape: [2, 3], dtype: "float32" }],
    run: (mx, [x, u]) => mx.sliceUpdate(x, u, mx.array([9, 1], mx.int32), [0, 1]),
    oracle: ([x, u]) =>
      build([4, 6], ([i, j]) => i >= 2 && j >= 1 && j < 4 ? read(u, [i - 2, j - 1]) : read(x, [i, j])),
    tolerance: EXACT,
  };
  yield {
    op: "slice",
    what: "start from an array",
    inputs: x,
    run: (mx, [x]) => mx.slice(x, mx.array([1, 3], mx.int32), [0, 2], [2, 5, 3]),
    oracle: at(([i, j, k], x) => read(x, [i + 1, j, k + 3]), [2, 5, 3]),
    tolerance: EXACT,
  };
}
