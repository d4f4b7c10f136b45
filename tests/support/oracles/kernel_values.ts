/** Elements of any dtype for tests at the level of kernels, and how close results must be. */

import { assert, assertEquals } from "@std/assert";
import type { Dtype, HostArray } from "../../../src/graph/dtype.ts";
import * as dtypes from "../../../src/graph/dtype.ts";
import { generator, nmse } from "./oracle.ts";

/** Elements of a dtype from numbers, rounded or wrapped to it. */
export function pack(dtype: Dtype, values: ArrayLike<number>): HostArray {
  const view = dtypes.hostView(dtype, new Uint8Array(values.length * dtype.bytes));
  for (let i = 0; i < values.length; i++) dtypes.setHostValue(dtype, view, i, values[i]);
  return view;
}

/** Numbers that elements of a dtype stand for. */
export function unpack(dtype: Dtype, view: HostArray): number[] {
  return Array.from({ length: view.length }, (_, i) => Number(dtypes.hostValue(dtype, view, i)));
}

/** `n` values that the dtype holds exactly. */
export function random(dtype: Dtype, n: number, seed: number): number[] {
  const next = generator(seed);
  const values = Array.from({ length: n }, () => {
    if (dtype === dtypes.bool) return next() < 0.5 ? 0 : 1;
    if (dtype.kind === "uint") return Math.floor(next() * 200);
    if (dtype.kind === "int") return Math.floor(next() * 200) - 100;
    return next() * 8 - 4;
  });
  return unpack(dtype, pack(dtype, values));
}

/** The NMSE bound of a dtype. */
export function bound(dtype: Dtype): number {
  return dtype === dtypes.float32 ? 1e-7 : 1e-5;
}

/** Asserts the NMSE of `actual`. */
export function assertClose(actual: ArrayLike<number>, expected: ArrayLike<number>, limit: number, what: string): void {
  assertEquals(actual.length, expected.length, what);
  const error = nmse(actual, expected);
  assert(error <= limit, `${what}: NMSE ${error} > ${limit}`);
}
