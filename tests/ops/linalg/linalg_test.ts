/**
 * Factorizations of hard matrices, held to backward-error bounds in float64; their errors; and how a GPU hands them to the CPU.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import {
  apart,
  HARD,
  identity,
  type Matrix,
  matrix,
  product,
  random,
  scaledBy,
  symmetric,
  turned,
} from "../../support/oracles/hard_matrices.ts";

const list = (x: mx.Tensor): Matrix => x.tolist() as unknown as Matrix;
const numbers = (x: mx.Tensor): number[] => x.tolist() as unknown as number[];

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  for (const [what, a] of Object.entries(HARD)) {
    Deno.test(`factors of a matrix ${what} on ${device}`, () =>
      mx.tidy(() => {
        mx.setDefaultDevice(device);
        const n = a.length, bound = 4 * Math.sqrt(n) + 4, x = mx.array(a), one = identity(n);

        const [q, r] = mx.linalg.qr(x).map(list);
        assert(apart(a, product(q, r)) < bound, "Q R");
        assert(apart(one, product(turned(q), q)) < bound, "Qᵀ Q");

        const [u, s, vt] = mx.linalg.svd(x);
        assert(apart(a, product(scaledBy(list(u), numbers(s)), list(vt))) < bound, "U S Vᵀ");
        assert(apart(one, product(turned(list(u)), list(u))) < bound, "Uᵀ U");
        assert(apart(one, product(list(vt), turned(list(vt)))) < bound, "V Vᵀ");
        assert(numbers(s).every((v, i, all) => v >= 0 && (i === 0 || v <= all[i - 1])), "S descends");
        assert(apart([numbers(s)], [numbers(mx.linalg.svd(x, false))]) < bound, "S alone");

        const [p, l, upper] = mx.linalg.lu(x);
        const rows = list(l);
        assert(apart(a, product(numbers(p).map((i) => rows[i]), list(upper))) < bound, "P L U");
        assert(rows.flat().every((v) => Math.abs(v) <= 1), "rows were exchanged");

        const sym = symmetric(a);
        const [w, v] = mx.linalg.eigh(mx.array(sym));
        assert(apart(sym, product(scaledBy(list(v), numbers(w)), turned(list(v)))) < bound, "V W Vᵀ");
        assert(apart(one, product(turned(list(v)), list(v))) < bound, "Vᵀ V");
        assert(numbers(w).every((x, i, all) => i === 0 || x >= all[i - 1]), "W ascends");
        assert(apart([numbers(w)], [numbers(mx.linalg.eigvalsh(mx.array(sym)))]) < bound, "W alone");
      }));
  }

  Deno.test(`factors of semidefinite matrices, and of none, on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      for (const rank of [1, 3, 60]) {
        const a = random(60, rank);
        const square = product(a, turned(a)).map((row) => row.map(Math.fround));
        const l = list(mx.linalg.cholesky(square));
        assert(apart(square, product(l, turned(l))) < 60 * 8, `rank ${rank}`);
      }
      assert(mx.linalg.cholesky([[-1, 0], [0, 1]]).tolist().flat().every(Number.isNaN));
      assertEquals(mx.linalg.cholesky([[4, 99], [2, 5]]).tolist(), [[2, 0], [1, 2]]);
      assertEquals(mx.linalg.cholesky([[4, 2], [99, 5]], true).tolist(), [[2, 1], [0, 2]]);
    }));

  Deno.test(`NaN, infinities and singular matrices end in NaN on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      const { qr, svd, eigh, inv, solve, triInv } = mx.linalg;
      for (const bad of [NaN, Infinity, -Infinity]) {
        const a = mx.array(matrix(6, 6, (i, j) => i === j && i === 3 ? bad : i + j * j));
        for (const x of [...qr(a), ...svd(a), ...eigh(a), svd(a, false)]) assert(mx.all(mx.isnan(x)).item());
      }
      for (const x of [inv(mx.ones([3, 3])), solve(mx.zeros([2, 2]), mx.ones([2])), triInv([[1, 2], [3, 0]])]) {
        assert(mx.all(mx.isnan(x)).item());
      }
      assertEquals(mx.linalg.det(mx.ones([5, 5])).item(), 0);
      const [sign, size] = mx.linalg.slogdet([[[1, 2], [2, 4]], [[0, 1], [1, 0]]]);
      assertEquals([numbers(sign).map(Math.abs), numbers(size)], [[0, 1], [-Infinity, 0]]);
    }));

  Deno.test(`signs and orders are LAPACK's on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      const a = [[1, 2, 3], [4, 5, 6], [7, 8, 10]];
      const [q, r] = mx.linalg.qr(a).map(list); // MLX gives these
      assert(apart([[-0.12309146], [-0.49236593], [-0.8616404]], q.map((row) => [row[0]])) < 4);
      assert(apart([[0.90453404], [0.3015112], [-0.30151135]], q.map((row) => [row[1]])) < 8);
      assert(apart([[-8.1240387]], [[r[0][0]]]) < 2);
      const [p, l, u] = mx.linalg.lu(a);
      assertEquals(numbers(p), [1, 2, 0]);
      assert(apart([[1, 0, 0], [1 / 7, 1, 0], [4 / 7, 0.5, 1]], list(l)) < 2);
      assert(apart([[7, 8, 10], [0, 6 / 7, 11 / 7], [0, 0, -0.5]], list(u)) < 2);
      assertEquals(numbers(mx.linalg.luFactor(a)[1]), [2, 2, 2]);
    }));

  Deno.test(`norms of singular values on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      const x = mx.array([[[3, 0], [0, -4]], [[1, 0], [0, 2]]]);
      const close = (found: mx.Tensor, expected: Matrix): void =>
        assert(apart(expected, [found.tolist()].flat(2).map((v) => [v as number])) < 4);
      close(mx.linalg.norm(x, 2, [1, 2]), [[4], [2]]);
      close(mx.linalg.norm(x, -2, [-1, -2]), [[3], [1]]);
      close(mx.linalg.norm(x, "nuc", [2, 1]), [[7], [3]]);
      assertEquals(mx.linalg.norm(x, "nuc", [2, 0], true).shape, [1, 2, 1]);
      assertThrows(() => mx.linalg.norm(x, "nuc"), mx.ValueError, "two axes");
    }));

  Deno.test(`a function with factorizations is compiled on ${device}`, () =>
    mx.tidy(() => {
      mx.setDefaultDevice(device);
      using f = mx.compile((x: mx.Tensor) => {
        const [w, v] = mx.linalg.eigh(mx.matmul(x, x.T));
        return [mx.add(w, 1), mx.matmul(mx.linalg.inv(v), v), x];
      });
      for (const n of [3, 3, 5]) {
        const a = random(n, n);
        const [w, one, same] = f(mx.array(a));
        assert(apart(identity(n), list(one)) < 64);
        assertEquals(list(same), a);
        const trace = product(a, turned(a)).reduce((sum, row, i) => sum + row[i] + 1, 0);
        assert(apart([[trace]], [[numbers(w).reduce((sum, v) => sum + v, 0)]]) < 64);
      }
    }));

  Deno.test(`${device} computes factorizations on the CPU, once for all results`, async () => {
    mx.setDefaultDevice(device);
    using _options = withOptions({ env: { VKMX_STRICT: "1" } });
    const found = await mx.profile(() =>
      mx.tidy(() => {
        const [q, r] = mx.linalg.qr(mx.multiply(mx.ones([3, 2]), 2));
        mx.eval(mx.matmul(q, r));
        mx.eval(q, mx.add(r, 1));
      }), { timed: false });
    const rows = found.kernels.filter(({ op }) => op === "factorization");
    assertEquals(rows.map(({ device, kernel, calls }) => ({ device, kernel, calls })), [{
      device: "wasm",
      kernel: "qr",
      calls: 1,
    }]);
    assertEquals(found.fallbacks.some((line) => line.startsWith("qr: on wasm")), device !== "wasm");
  });
}

Deno.test("factorizations say what they take", () => {
  const { linalg } = mx;
  const names = [
    "qr",
    "svd",
    "inv",
    "triInv",
    "cholesky",
    "choleskyInv",
    "pinv",
    "eigh",
    "eigvalsh",
    "lu",
    "luFactor",
  ] as const;
  for (const name of names) {
    assertThrows(
      () => linalg[name](mx.zeros([2, 2], mx.int32)),
      mx.DtypeError,
      `${name}() expected an array of float32`,
    );
    assertThrows(() => linalg[name](mx.zeros([2, 2], mx.float16)), mx.DtypeError, "astype(mx.float32)");
    assertThrows(() => linalg[name]([1, 2]), mx.ShapeError, "at least 2 axes");
  }
  for (const name of ["inv", "triInv", "cholesky", "eigh", "eigvalsh", "det", "slogdet"] as const) {
    assertThrows(() => linalg[name](mx.zeros([2, 3])), mx.ShapeError, "square");
  }
  assertThrows(() => linalg.solve(mx.zeros([2, 3]), [1, 2]), mx.ShapeError, "square");
  assertThrows(() => linalg.solve(mx.zeros([2, 2]), [1, 2, 3]), mx.ShapeError, "2 rows");
  assertThrows(() => linalg.solve(mx.zeros([2, 2]), 1), mx.ShapeError, "2 rows");
  assertThrows(() => linalg.solve(mx.zeros([2, 2], mx.int32), mx.zeros([2], mx.int32)), mx.DtypeError, "float32");
  assertThrows(() => linalg.solveTriangular([[1]], [1], { uper: true } as object), mx.ValueError, "upper");
  assertThrows(() => linalg.eigh([[1]], "X" as "U"), mx.ValueError, '"L" or "U"');
  assertEquals(linalg.det(mx.zeros([3, 0, 0])).tolist(), [1, 1, 1]);
  assertEquals(linalg.det(mx.zeros([2, 2], mx.float16)).dtype, mx.float16);
});
