/**
 * Eigenvalues of general and Hermitian matrices and factorizations of complex64, held to backward-error bounds in float64.
 */

import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import {
  EPSILON,
  HARD,
  identity,
  type Matrix,
  matrix,
  product,
  random,
  size,
  turned,
} from "../../support/oracles/hard_matrices.ts";

/** Real and imaginary parts. */
type Parts = readonly [Matrix, Matrix];

const each = (a: Matrix, b: Matrix, f: (x: number, y: number) => number): Matrix =>
  a.map((row, i) => row.map((v, j) => f(v, b[i][j])));
const plus = (a: Matrix, b: Matrix): Matrix => each(a, b, (x, y) => x + y);
const minus = (a: Matrix, b: Matrix): Matrix => each(a, b, (x, y) => x - y);
const times = ([a, b]: Parts, [c, d]: Parts): Parts => [
  minus(product(a, c), product(b, d)),
  plus(product(a, d), product(b, c)),
];
/** The conjugate transpose. */
const adjoint = ([a, b]: Parts): Parts => [turned(a), turned(b).map((row) => row.map((v) => -v))];
const real = (a: Matrix): Parts => [a, a.map((row) => row.map(() => 0))];
const diagonal = ([[re], [im]]: Parts): Parts => [
  re.map((v, i) => re.map((_, j) => i === j ? v : 0)),
  im.map((v, i) => im.map((_, j) => i === j ? v : 0)),
];
const whole = ([a, b]: Parts): number => Math.hypot(size(a), size(b));

/** How far two matrices are apart, in roundings of float32 relative to `scale`. */
const apart = (a: Parts, b: Parts, scale = whole(a)): number =>
  whole([minus(a[0], b[0]), minus(a[1], b[1])]) / (scale || 1) / EPSILON;

const array = ([a, b]: Parts): mx.Tensor =>
  mx.array(a.map((row, i) => row.map((v, j) => mx.complex(v, b[i][j]))), mx.complex64);
const list = (x: mx.Tensor): Parts => {
  const rows = x.ndim === 1 ? mx.expandDims(x, 0) : x;
  return [mx.real(rows), mx.imag(rows)].map((part) => part.tolist() as unknown as Matrix) as unknown as Parts;
};
const row = (x: mx.Tensor): number[] => x.tolist() as unknown as number[];

/** Matrices with fewer eigenvectors than rows, and others that only eigenvalues of general matrices are hard for. */
const GENERAL: Readonly<Record<string, Matrix>> = {
  ...HARD,
  "with one vector": matrix(4, 4, (i, j) => i === j ? 2 : i + 1 === j ? 1 : 0),
  "that vanishes when squared": [[0, 1], [0, 0]],
  "with one vector of two": [[1, 1], [-1, -1]],
  "of turns": matrix(6, 6, (i, j) => i >> 1 !== j >> 1 ? 0 : i === j ? 0 : i < j ? -(1 + i) : 1 + j),
  "with equal pairs": matrix(8, 8, (i, j) => i === j ? 1 : (i ^ 1) === j ? (i < j ? -2 : 2) : i + 2 === j ? 1 : 0),
  "that is triangular": matrix(30, 30, (i, j) => i <= j ? (i + 2 * j) % 7 - 3 : 0),
  "of a polynomial": matrix(10, 10, (i, j) => i === 0 ? -((j * 7) % 5) : i === j + 1 ? 1 : 0),
};

const ill = (a: Matrix): Parts => [a, turned(a).map((r, i) => r.map((v, j) => (i + j) % 3 ? v : -v / 2))];

/** Checks values and vectors of a, whose values are all there: their sums and sums of squares are those of a. */
function checkSpectrum(a: Parts, values: Parts, vectors: Parts): void {
  const n = a[0].length, bound = 4 * Math.sqrt(n) + 4, scale = whole(a);
  assert(apart(times(a, vectors), times(vectors, diagonal(values)), scale) < bound, "A V = V W");
  const lengths = turned(vectors[0]).map((re, i) => Math.hypot(...re, ...turned(vectors[1])[i]));
  for (const length of lengths) assertAlmostEquals(length, 1, 8 * EPSILON);
  const trace = ([re, im]: Parts): [number, number] => [
    re.reduce((sum, r, i) => sum + r[i], 0),
    im.reduce((sum, r, i) => sum + r[i], 0),
  ];
  const w = diagonal(values);
  for (const [x, y, unit] of [[a, w, scale], [times(a, a), times(w, w), scale * scale]] as const) {
    const [found, expected] = [trace(y), trace(x)];
    for (const i of [0, 1]) assert(Math.abs(found[i] - expected[i]) <= unit * n * 4 * EPSILON, "the trace");
  }
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  for (const [what, a] of Object.entries(GENERAL)) {
    Deno.test(`eigenvalues of a matrix ${what} on ${device}`, () =>
      mx.tidy(() => {
        mx.setDefaultDevice(device);
        const [values, vectors] = mx.linalg.eig(mx.array(a));
        assert(values.dtype === mx.complex64 && vectors.dtype === mx.complex64);
        checkSpectrum(real(a), list(values), list(vectors));
        const [[re], [im]] = list(values);
        const lower = im.flatMap((v, i) => v < 0 ? [i] : []);
        assertEquals(lower.map((i) => [re[i], -im[i]]), lower.map((i) => [re[i - 1], im[i - 1]]), "pairs");
        assertEquals(list(mx.linalg.eigvals(mx.array(a))), [[re], [im]]);

        const c = ill(a);
        const [w, v] = mx.linalg.eig(array(c));
        checkSpectrum(c, list(w), list(v));
        assertEquals(list(mx.linalg.eigvals(array(c))), list(w));
      }));
  }

  for (const [what, a] of Object.entries(HARD)) {
    Deno.test(`complex factors of a matrix ${what} on ${device}`, () =>
      mx.tidy(() => {
        mx.setDefaultDevice(device);
        const n = a.length, bound = 4 * Math.sqrt(n) + 4, c = ill(a);
        const half = (b: Matrix): Matrix => b.map((r) => r.map((x) => Math.fround(x / 2)));
        const hermitian: Parts = [half(plus(c[0], turned(c[0]))), half(minus(c[1], turned(c[1])))];
        const [values, vectors] = mx.linalg.eigh(array(hermitian));
        assert(values.dtype === mx.float32);
        const v = list(vectors), w: Parts = diagonal([[row(values)], [row(values).map(() => 0)]]);
        assert(apart(hermitian, times(times(v, w), adjoint(v))) < bound, "V W Vᴴ");
        assert(apart(real(identity(n)), times(adjoint(v), v)) < bound, "Vᴴ V");
        assert(row(values).every((x, i, all) => i === 0 || x >= all[i - 1]), "W ascends");
        assertEquals(row(mx.linalg.eigvalsh(array(hermitian))), row(values));

        for (const [rows, cols] of [[n, n], [n, n >> 1], [n >> 1, n], [1, n], [n, 1]]) {
          const part = c.map((p) => p.slice(0, rows).map((r) => r.slice(0, cols))) as unknown as Parts;
          if (rows === 0 || cols === 0) continue;
          const [u, s, vt] = mx.linalg.svd(array(part));
          assert(s.dtype === mx.float32);
          const k = Math.min(rows, cols), [left, right] = [list(u), list(vt)];
          const first = left.map((p) => p.map((r) => r.slice(0, k))) as unknown as Parts;
          const across = right.map((p) => p.slice(0, k)) as unknown as Parts;
          const scaled = times(first, diagonal([[row(s)], [row(s).map(() => 0)]]));
          assert(apart(part, times(scaled, across)) < bound, "U S Vᴴ");
          assert(apart(real(identity(rows)), times(adjoint(left), left)) < bound, "Uᴴ U");
          assert(apart(real(identity(cols)), times(right, adjoint(right))) < bound, "V Vᴴ");
          assert(row(s).every((x, i, all) => x >= 0 && (i === 0 || x <= all[i - 1])), "S descends");
          assertEquals(row(mx.linalg.svd(array(part), false)), row(s));
        }
      }));
  }

  Deno.test(`values are those that MLX gives on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      const a = array([[[4, 1, 0], [9, 5, 1], [8, 0, 1]], [[7, -2, 3], [9, 0, 1], [0, 8, 0]]]);
      const close = (found: mx.Tensor, expected: number[]): void =>
        row(found).forEach((v, i) => assertAlmostEquals(v, expected[i], 1e-5 * 20));
      close(mx.linalg.eigvalsh(a, "L"), [-15.220335, 6.5973167, 18.623018]);
      close(mx.linalg.eigvalsh(a, "U"), [-1.4721359, 4, 7.472136]);
      close(mx.linalg.eigh(a, "U")[0], [-1.4721359, 4, 7.472136]);
      // Pairs begin above the real axis, and the largest element of a vector that is not real, is.
      const [values, vectors] = mx.linalg.eig([[0, -1], [1, 0]]);
      assertEquals(list(values), [[[0, 0]], [[1, -1]]]);
      assertEquals(row(mx.imag(vectors).index(0)), [0, -0]);
      close(mx.linalg.norm(a, "nuc").reshape(1), [28.694720614437234]);
    }));

  Deno.test(`eigenvalues of batches, views, float64 and none on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      const one = random(5, 5), other = random(5, 5);
      const both = mx.linalg.eig(mx.array([[one, other]]).transpose(0, 1, 3, 2));
      assertEquals(both.map((x) => x.shape), [[1, 2, 5], [1, 2, 5, 5]]);
      for (const [i, a] of [one, other].entries()) {
        checkSpectrum(real(turned(a)), list(both[0].index(0, i)), list(both[1].index(0, i)));
      }
      for (const shape of [[0, 0], [3, 0, 0], [0, 4, 4]]) {
        const x = mx.zeros(shape);
        assertEquals(mx.linalg.eig(x).map((y) => y.shape), [shape.slice(0, -1), shape]);
        assertEquals([row(mx.linalg.eigvals(x)).flat().length, mx.linalg.eigvals(x).dtype], [0, mx.complex64]);
        const [w, v] = mx.linalg.eigh(x.astype(mx.complex64));
        assertEquals([w.shape, v.shape, w.dtype, v.dtype], [shape.slice(0, -1), shape, mx.float32, mx.complex64]);
      }
      if (device !== "wasm") return;
      const [w, v] = mx.linalg.eig(mx.array(one, mx.float64));
      checkSpectrum(real(one), list(w), list(v));
    }));

  Deno.test(`NaN and infinities end in NaN on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      for (const bad of [NaN, Infinity, -Infinity]) {
        const a = matrix(6, 6, (i, j) => i === j && i === 3 ? bad : i + j * j);
        const c = array([random(6, 6), a]);
        const { eig, eigvals, eigh, svd } = mx.linalg;
        const all = [
          ...eig(a),
          eigvals(a),
          ...eig(c),
          eigvals(c),
          ...eigh(array([a, random(6, 6)])),
          ...svd(c),
          svd(c, false),
        ];
        for (const x of all) assert(mx.all(mx.isnan(x)).item());
        const [values] = eig(mx.stack([mx.array(a), mx.eye(6)]));
        assertEquals(row(mx.real(values).index(1)), Array(6).fill(1), "its neighbour is untouched");
      }
    }));
}

Deno.test("factorizations of complex64 are those of MLX", () => {
  const { linalg } = mx, a = mx.zeros([2, 2], mx.complex64);
  for (const name of ["qr", "inv", "triInv", "cholesky", "choleskyInv", "pinv", "lu", "luFactor"] as const) {
    assertThrows(
      () => linalg[name](a),
      mx.DtypeError,
      `${name}() expected an array of float32 or float64: found complex64`,
    );
  }
  for (const name of ["det", "slogdet"] as const) {
    assertThrows(() => linalg[name](a), mx.DtypeError, `${name}() takes real numbers: found complex64`);
  }
  for (const name of ["solve", "solveTriangular"] as const) {
    assertThrows(() => linalg[name](a, mx.zeros([2])), mx.DtypeError, "found complex64");
  }
  for (const name of ["eig", "eigvals", "eigh", "eigvalsh", "svd"] as const) {
    assertThrows(
      () => linalg[name](mx.zeros([2, 2], mx.float16)),
      mx.DtypeError,
      "float64 or complex64: found float16",
    );
    assertThrows(() => linalg[name]([1, 2]), mx.ShapeError, "at least 2 axes");
    if (name !== "svd") assertThrows(() => linalg[name](mx.zeros([2, 3])), mx.ShapeError, "square");
  }
});
