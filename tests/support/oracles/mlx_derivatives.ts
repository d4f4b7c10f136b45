/**
 * Cases of tests/golden/arrays/mlx_derivatives.gz: calls with what MLX's transforms give for them.
 * tests/reference/mlx_derivatives.py writes them, and says what is in a case and which tolerance its values have.
 */

import * as mx from "../../../mod.ts";
import { argumentsOf, functionOf, type MlxCase, type MlxCases, readMlxCases, resultsOf, valueOf } from "./mlx_cases.ts";

type T = mx.Tensor;

/** The result of a transform. */
export interface Given {
  readonly o: readonly unknown[];
  readonly as?: readonly mx.DtypeName[];
  /** Where the values come from, if not from MLX's transform. */
  readonly by?: "differences" | "loop";
}

/** The transforms of a case. */
export type DerivativeKind = "vjp" | "jvp" | "twice" | "vmap" | "vmap_vjp" | "vjp_vmap";

/** A call, and what transforms give for it. */
export interface DerivativeCase extends MlxCase {
  readonly c?: readonly unknown[];
  readonly t?: readonly unknown[];
  readonly in?: readonly (number | null)[];
  readonly out?: number;
  readonly size?: number;
  readonly scaled?: boolean;
  readonly r: Readonly<Partial<Record<DerivativeKind, Given>>>;
}

/** All cases. */
export function readDerivatives(): MlxCases<DerivativeCase> {
  return readMlxCases<DerivativeCase>("mlx_derivatives.gz");
}

/** Arguments with other arrays, taken from a list; keywords are an object after them. */
function withArrays(tree: unknown, arrays: T[]): unknown {
  if (tree instanceof mx.Tensor) return arrays.shift()!;
  if (Array.isArray(tree)) return tree.map((part) => withArrays(part, arrays));
  if (!isKeywords(tree)) return tree;
  return Object.fromEntries(Object.entries(tree).map(([key, part]) => [key, withArrays(part, arrays)]));
}

function arraysOf(tree: unknown): T[] {
  if (tree instanceof mx.Tensor) return [tree];
  if (Array.isArray(tree)) return tree.flatMap(arraysOf);
  return isKeywords(tree) ? Object.values(tree).flatMap(arraysOf) : [];
}

function isKeywords(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null && Object.getPrototypeOf(v) === Object.prototype && !("kind" in v);
}

const floating = (x: T): boolean => x.dtype.kind === "float" || x.dtype.kind === "complex";

/** The arrays that begin with one and are it, its elements moved on by one, by two, or grown where a case says so. */
function batchOf(x: T, axis: number, { size, scaled }: DerivativeCase): T {
  const each = (b: number): T => {
    if (scaled && floating(x)) return mx.multiply(x, 1 + b / 2) as T;
    return x.size === 0 ? x : mx.reshape(mx.roll(mx.flatten(x), b), x.shape) as T;
  };
  return mx.stack(Array.from({ length: size! }, (_, b) => each(b)), axis) as T;
}

/** A case as a function of its arrays, with what it is asked at. */
export class Call {
  readonly #args: unknown[];
  readonly arrays: readonly T[];
  /** Places of the floating arrays. */
  readonly at: readonly number[];
  readonly cotangents: readonly T[];
  readonly tangents: readonly T[];

  constructor(readonly c: DerivativeCase, elements: Uint8Array<ArrayBuffer>) {
    this.#args = argumentsOf(c, elements);
    this.arrays = arraysOf(this.#args);
    this.at = this.arrays.flatMap((x, i) => floating(x) ? [i] : []);
    const asGiven = (list: readonly unknown[] = []): T[] => list.map((v) => valueOf(v, elements) as T);
    this.tangents = asGiven(c.t).map((t, i) => mx.astype(t, this.arrays[this.at[i]].dtype) as T);
    const like = c.c ? this.of(this.arrays)(...this.primals(this.arrays)) : [];
    this.cotangents = asGiven(c.c).map((v, i) => mx.astype(v, like[i].dtype) as T);
  }

  /** All results. */
  run(arrays: readonly T[]): T[] {
    const args = withArrays(this.#args, [...arrays]) as unknown[];
    return resultsOf(this.c, functionOf(this.c.f)!(...args)).filter((v) => v instanceof mx.Tensor);
  }

  /** The floating results as a function of the floating arrays. */
  of(arrays: readonly T[]): (...primals: T[]) => T[] {
    return (...primals) => {
      const whole = [...arrays];
      this.at.forEach((place, i) => whole[place] = primals[i]);
      return this.run(whole).filter(floating);
    };
  }

  primals(arrays: readonly T[]): T[] {
    return this.at.map((place) => arrays[place]);
  }

  /** The arrays, those of a batch with its axis. */
  batched(): T[] {
    return this.arrays.map((x, i) => {
      const axis = this.c.in![i];
      return axis === null ? x : batchOf(x, axis, this.c);
    });
  }

  #back = (arrays: readonly T[]): T[] => mx.vjp(this.of(arrays), this.primals(arrays), this.cotangents)[1];

  /** The results of a transform: functions of the arrays given with them, so that they can be compiled; each gives the same. */
  transforms(kind: DerivativeKind): readonly (readonly [fn: (...arrays: T[]) => T[], arrays: readonly T[]])[] {
    const { arrays, cotangents, tangents } = this;
    const back = (own: readonly T[]) => (...primals: T[]): T[] => mx.vjp(this.of(own), primals, cotangents)[1];
    switch (kind) {
      case "vjp":
        return [[(...own) => this.#back(own), arrays]];
      case "jvp":
        return [[(...own) => mx.jvp(this.of(own), this.primals(own), tangents)[1], arrays]];
      case "twice":
        return [
          [(...own) => mx.jvp(back(own), this.primals(own), tangents)[1], arrays],
          [(...own) => mx.vjp(back(own), this.primals(own), tangents)[1], arrays],
        ];
      case "vmap":
        return [[mx.vmap((...own: T[]) => this.run(own), this.c.in, this.c.out), this.batched()]];
      case "vmap_vjp":
        return [[mx.vmap((...own: T[]) => this.#back(own), this.c.in), this.batched()]];
      case "vjp_vmap": {
        const repeated = cotangents.map((x) => mx.broadcastTo(x, [this.c.size!, ...x.shape]) as T);
        const mapped = (own: readonly T[]) => (...primals: T[]): T[] => {
          const whole = [...own];
          this.at.forEach((place, i) => whole[place] = primals[i]);
          return mx.vmap((...each: T[]) => this.run(each).filter(floating), this.c.in)(...whole);
        };
        return [[(...own) => mx.vjp(mapped(own), this.primals(own), repeated)[1], this.batched()]];
      }
    }
  }
}
