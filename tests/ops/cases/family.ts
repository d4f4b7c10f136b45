/**
 * Draws the rows of an op.
 */

import { type Dense, map } from "../../support/oracles/oracle.ts";
import type { Case, Library, Tensor, TypeName } from "./case.ts";
import { type Draw, stored } from "./draw.ts";

/** A row without the name of its op. */
export type Drawn = Omit<Case, "op" | "what"> & { readonly what?: string };

/** Draws a row of an op. */
export type Family = (d: Draw) => Drawn;

/** Families by op. */
export type Families = Record<string, Family>;

/** A function of the library, with its namespace before its name: "nn.relu". */
// deno-lint-ignore no-explicit-any
export function named(mx: Library, name: string): (...args: any[]) => any {
  const parts = name.split(".");
  // deno-lint-ignore no-explicit-any
  return parts.reduce((object: any, part) => object[part], mx);
}

/** Calls an elementwise function of the library. */
export function call(mx: Library, name: string, x: Tensor[]): Tensor {
  return named(mx, name)(...x);
}

/** The NMSE bound of elementwise results; of bfloat16 it is one rounding of a single number that lies between two. */
export function elementTolerance(dtype: TypeName): number {
  return { float32: 1e-7, float16: 1e-5, bfloat16: 1.6e-5 }[dtype as "float32"] ?? 0;
}

/** Every element as a dtype stores it. */
export function storedAs(dtype: TypeName, x: Dense): Dense {
  return map((v) => stored(dtype, v), x);
}
