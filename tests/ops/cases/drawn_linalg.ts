/**
 * Factorizations and what is made of them. Where factors are not unique, their product and orthogonality are compared: with the input,
 * and with the identity.
 */

import { build, type Dense, matmul, read, transpose } from "../../support/oracles/oracle.ts";
import type { Input, Library, Tensor } from "./case.ts";
import { type Draw, stored } from "./draw.ts";
import type { Drawn, Families } from "./family.ts";

/** Relative errors of about 1e-5. */
const TOLERANCE = 1e-10;

const BATCHES = [[], [], [1], [3], [2, 2], [0]] as const;
const SIZES = [0, 1, 1, 2, 3, 4, 7, 33, 50] as const;

function axes(rank: number): number[] {
  return [...Array.from({ length: rank - 2 }, (_, i) => i), rank - 1, rank - 2];
}

/** Matrices with larger numbers on the diagonal, so that they are far from singular; symmetric ones where asked for. */
function matrices(d: Draw, batch: readonly number[], m: number, n: number, symmetric = false): Input {
  const shape = [...batch, m, n];
  const random = build(shape, () => 2 * d.next() - 1);
  const { data } = build(shape, (at) => {
    const [i, j] = at.slice(-2);
    const across = symmetric && i > j ? [...at.slice(0, -2), j, i] : at;
    return stored("float32", read(random, across) + (i === j ? n + 1 : 0));
  });
  return { shape, dtype: "float32", data: [...data], layout: d.pick([undefined, "transposed", "offset", "reversed"]) };
}

function square(d: Draw, symmetric = false): Input {
  const n = d.pick(SIZES);
  return matrices(d, d.pick(BATCHES), n, n, symmetric);
}

function identity(batch: readonly number[], n: number): Dense {
  return build([...batch, n, n], (at) => at[batch.length] === at[batch.length + 1] ? 1 : 0);
}

const turned = (x: Dense): Dense => transpose(x, axes(x.shape.length));
const turn = (mx: Library, x: Tensor): Tensor => mx.swapaxes(x, -1, -2);

/** Gauss-Jordan elimination with exchange of rows: solutions of a x = b, and the determinant; one matrix. */
function eliminate(a: number[][], b: number[][]): { x: number[][]; logdet: number; sign: number } {
  const n = a.length;
  const rows = a.map((row, i) => [...row, ...b[i]]);
  let [logdet, sign] = [0, 1];
  for (let j = 0; j < n; j++) {
    let pivot = j;
    for (let i = j; i < n; i++) if (Math.abs(rows[i][j]) > Math.abs(rows[pivot][j])) pivot = i;
    if (pivot !== j) [rows[j], rows[pivot], sign] = [rows[pivot], rows[j], -sign];
    const diagonal = rows[j][j];
    logdet += Math.log(Math.abs(diagonal));
    sign *= Math.sign(diagonal);
    rows[j] = rows[j].map((v) => v / diagonal);
    for (let i = 0; i < n; i++) {
      const factor = rows[i][j];
      if (i !== j && factor !== 0) rows[i] = rows[i].map((v, k) => v - factor * rows[j][k]);
    }
  }
  return { x: rows.map((row) => row.slice(n)), logdet, sign };
}

/** The matrices of a batch as lists of rows. */
function listed({ shape, data }: Dense): number[][][] {
  const [m, n] = shape.slice(-2);
  const count = shape.slice(0, -2).reduce((p, q) => p * q, 1);
  return Array.from(
    { length: count },
    (_, b) => Array.from({ length: m }, (_, i) => Array.from(data.slice((b * m + i) * n, (b * m + i + 1) * n))),
  );
}

function dense(shape: readonly number[], lists: readonly (readonly (readonly number[])[])[]): Dense {
  return { shape: [...shape], data: Float64Array.from(lists.flat(2)) };
}

function inverse(a: Dense): Dense {
  const n = a.shape[a.shape.length - 1];
  const eye = listed(identity([], n))[0];
  return dense(a.shape, listed(a).map((rows) => eliminate(rows, eye).x));
}

/** A dense array with one triangle alone. */
function triangle(a: Dense, upper: boolean): Dense {
  return build(a.shape, (at) => {
    const [i, j] = at.slice(-2);
    return (upper ? i <= j : i >= j) ? read(a, at) : 0;
  });
}

function triangular(d: Draw): { input: Input; upper: boolean } {
  return { input: square(d), upper: d.chance(0.5) };
}

const row = (what: string, rest: Omit<Drawn, "what" | "tolerance">): Drawn => ({ what, tolerance: TOLERANCE, ...rest });

/** Families of linear algebra. */
export function drawnLinalg(): Families {
  const rectangle = (d: Draw): Input => matrices(d, d.pick(BATCHES), d.pick(SIZES), d.pick(SIZES));
  const numbers = (f: (rows: number[][]) => number) => (a: Dense): Dense => ({
    shape: a.shape.slice(0, -2),
    data: Float64Array.from(listed(a), f),
  });
  const determinants = numbers((rows) => {
    const { sign, logdet } = eliminate(rows, rows.map(() => []));
    return sign * Math.exp(logdet);
  });
  return {
    "linalg.qr": (d) =>
      row("Q R and Qᵀ Q", {
        inputs: [rectangle(d)],
        run: (mx, [x]) => {
          const [q, r] = mx.linalg.qr(x);
          return [mx.matmul(q, r), mx.matmul(turn(mx, q), q), mx.tril(r, -1)];
        },
        oracle: ([x]) => {
          const [m, n] = x.shape.slice(-2);
          const batch = x.shape.slice(0, -2);
          const k = Math.min(m, n);
          return [x, identity(batch, k), build([...batch, k, n], () => 0)];
        },
      }),
    "linalg.svd": (d) =>
      row("U S Vᵀ, Uᵀ U, V Vᵀ and the norm of S", {
        inputs: [rectangle(d)],
        run: (mx, [x]) => {
          const [u, s, vt] = mx.linalg.svd(x);
          const k = s.shape[s.ndim - 1];
          const left = mx.multiply(mx.split(u, [k], -1)[0], mx.expandDims(s, -2));
          const product = mx.matmul(left, mx.split(vt, [k], -2)[0]);
          const values = mx.sum(mx.square(mx.linalg.svd(x, false)), -1);
          return [product, mx.matmul(turn(mx, u), u), mx.matmul(vt, turn(mx, vt)), values];
        },
        oracle: ([x]) => {
          const [m, n] = x.shape.slice(-2);
          const batch = x.shape.slice(0, -2);
          const squares = numbers((rows) => rows.flat().reduce((sum, v) => sum + v * v, 0))(x);
          return [x, identity(batch, m), identity(batch, n), squares];
        },
      }),
    "linalg.eigh": (d) => {
      const upper = d.chance(0.5);
      return row(`V W Vᵀ and Vᵀ V${upper ? " of the upper triangle" : ""}`, {
        inputs: [square(d)],
        run: (mx, [x]) => {
          const [w, v] = mx.linalg.eigh(x, upper ? "U" : "L");
          return [mx.matmul(mx.multiply(v, mx.expandDims(w, -2)), turn(mx, v)), mx.matmul(turn(mx, v), v)];
        },
        oracle: ([x]) => {
          const half = triangle(x, upper), other = turned(half);
          const whole = build(x.shape, (at) => {
            const [i, j] = at.slice(-2);
            return (upper ? i <= j : i >= j) ? read(half, at) : read(other, at);
          });
          return [whole, identity(x.shape.slice(0, -2), x.shape[x.shape.length - 1])];
        },
      });
    },
    "linalg.eigvalsh": (d) =>
      row("the sums of the values and of their squares", {
        inputs: [square(d, true)],
        run: (mx, [x]) => {
          const w = mx.linalg.eigvalsh(x);
          return [mx.sum(w, -1), mx.sum(mx.square(w), -1)];
        },
        oracle: ([x]) => [
          numbers((rows) => rows.reduce((sum, r, i) => sum + r[i], 0))(x),
          numbers((rows) => rows.flat().reduce((sum, v) => sum + v * v, 0))(x),
        ],
      }),
    "linalg.cholesky": (d) => {
      const upper = d.chance(0.5);
      return row(upper ? "Uᵀ U" : "L Lᵀ", {
        inputs: [square(d, true)],
        run: (mx, [x]) => {
          const f = mx.linalg.cholesky(x, upper);
          const product = upper ? mx.matmul(turn(mx, f), f) : mx.matmul(f, turn(mx, f));
          return [product, upper ? mx.tril(f, -1) : mx.triu(f, 1)];
        },
        oracle: ([x]) => [x, build(x.shape, () => 0)],
      });
    },
    "linalg.choleskyInv": (d) => {
      const { input, upper } = triangular(d);
      return row(upper ? "of U" : "of L", {
        inputs: [input],
        run: (mx, [x]) => mx.linalg.choleskyInv(x, upper),
        oracle: ([x]) => {
          const f = triangle(x, upper);
          return inverse(upper ? matmul(turned(f), f) : matmul(f, turned(f)));
        },
      });
    },
    "linalg.lu": (d) =>
      row("the rows P of L, times U", {
        inputs: [rectangle(d)],
        run: (mx, [x]) => {
          const [p, l, u] = mx.linalg.lu(x);
          return [mx.matmul(mx.takeAlongAxis(l, mx.expandDims(p, -1), -2), u), mx.triu(l, 1), mx.tril(u, -1)];
        },
        oracle: ([x]) => {
          const [m, n] = x.shape.slice(-2);
          const zeros = (...shape: number[]): Dense => build([...x.shape.slice(0, -2), ...shape], () => 0);
          return [x, zeros(m, Math.min(m, n)), zeros(Math.min(m, n), n)];
        },
      }),
    "linalg.luFactor": (d) => {
      // Every column's largest number is that of its diagonal, so no row moves.
      const input = square(d);
      return row("without exchanges", {
        inputs: [input],
        run: (mx, [x]) => {
          const [f, pivots] = mx.linalg.luFactor(x);
          const n = x.shape[x.ndim - 1];
          return [mx.matmul(mx.add(mx.tril(f, -1), mx.eye(n)), mx.triu(f)), pivots.astype(mx.float32)];
        },
        oracle: ([x]) => [x, build(x.shape.slice(0, -1), (at) => at[at.length - 1])],
      });
    },
    "linalg.inv": (d) =>
      row("", { inputs: [square(d)], run: (mx, [x]) => mx.linalg.inv(x), oracle: ([x]) => inverse(x) }),
    "linalg.triInv": (d) => {
      const { input, upper } = triangular(d);
      return row(upper ? "upper" : "lower", {
        inputs: [input],
        run: (mx, [x]) => mx.linalg.triInv(x, upper),
        oracle: ([x]) => inverse(triangle(x, upper)),
      });
    },
    "linalg.pinv": (d) => {
      const input = rectangle(d);
      return row("A A⁺ A, and one of its symmetries", {
        inputs: [input],
        run: (mx, [x]) => {
          const p = mx.linalg.pinv(x);
          const [m, n] = x.shape.slice(-2);
          return [mx.matmul(mx.matmul(x, p), x), m < n ? mx.matmul(x, p) : mx.matmul(p, x)];
        },
        oracle: ([x]) => [x, identity(x.shape.slice(0, -2), Math.min(...x.shape.slice(-2)))],
      });
    },
    "linalg.solve": (d) => solving(d),
    "linalg.solveTriangular": (d) => solving(d, d.chance(0.5)),
    "linalg.det": (d) =>
      row("", {
        inputs: [square(d)],
        run: (mx, [x]) => mx.linalg.det(mx.divide(x, 20)),
        oracle: ([x]) => determinants(scaled(x)),
      }),
    "linalg.slogdet": (d) =>
      row("", {
        inputs: [square(d)],
        run: (mx, [x]) => mx.linalg.slogdet(x),
        oracle: ([x]) => [
          numbers((rows) => eliminate(rows, rows.map(() => [])).sign)(x),
          numbers((rows) => eliminate(rows, rows.map(() => [])).logdet)(x),
        ],
      }),
  };
}

function scaled(x: Dense): Dense {
  return build(x.shape, (at) => stored("float32", read(x, at) / 20));
}

function solving(d: Draw, upper?: boolean): Drawn {
  const n = d.pick(SIZES);
  const batch = d.pick(BATCHES);
  const vector = d.chance(0.3);
  const a = matrices(d, batch, n, n);
  const b = vector
    ? d.input([n], "float32", [-2, 2])
    : d.input([...batch, n, d.pick([0, 1, 2, 5, 50])], "float32", [-2, 2]);
  return row(upper === undefined ? "" : upper ? "upper" : "lower", {
    inputs: [a, b],
    run: (mx, [x, y]) => upper === undefined ? mx.linalg.solve(x, y) : mx.linalg.solveTriangular(x, y, { upper }),
    oracle: ([x, y]) => {
      const left = upper === undefined ? x : triangle(x, upper);
      const columns = vector ? build([...batch, n, 1], (at) => y.data[at[batch.length]]) : y;
      const right = listed(columns);
      const found = dense(columns.shape, listed(left).map((rows, i) => eliminate(rows, right[i]).x));
      return vector ? { ...found, shape: [...batch, n] } : found;
    },
  });
}
