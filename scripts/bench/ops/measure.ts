/**
 * How `deno task bench:ops` measures: every call is waited for, the libraries take turns, and the median of several samples counts.
 *
 * The reference is ops/reference.py.
 *
 * @module
 */

import { median } from "../../../src/cli/bench/figures.ts";
import * as mx from "../../../mod.ts";
import { type Input, MissingFunction, type OpCase, sizeOf, type Work } from "./cases.ts";
import type { Reference } from "../reference.ts";

/** The libraries that a run compares with. */
export const REFERENCES = ["mlx", "numpy"] as const;
/** A library that vkmx is compared with. */
export type ReferenceName = typeof REFERENCES[number];

/** How much is measured. */
export interface Effort {
  /** Samples of each side. */
  readonly samples: number;
  /** Least milliseconds of a sample: short calls are repeated. */
  readonly ms: number;
  /** Whether the least of the samples counts and not their median. */
  readonly least?: boolean;
}

/** Figures of a row: milliseconds of a call, null if there are none. */
export interface OpRow {
  readonly case: string;
  readonly size: number;
  readonly work: Work;
  readonly vkmx: number | null;
  readonly mlx: number | null;
  readonly numpy: number | null;
  /** Why vkmx has no figure. */
  readonly missing?: string;
}

/** A random array; integers are rounded down. */
function randomArray({ shape, dtype, low, high }: Input): mx.Tensor {
  return mx.tidy(() => {
    if (dtype === "int32") return mx.random.randint(low, high, [...shape]);
    if (dtype === "bool") return mx.random.bernoulli(0.5, [...shape]);
    return mx.astype(mx.random.uniform(low, high, [...shape]), mx[dtype]);
  });
}

/** Milliseconds of one call, averaged over at least so many. */
function timeCalls(call: () => mx.Tensor | readonly mx.Tensor[], ms: number): number {
  const start = performance.now();
  for (let count = 1;; count++) {
    mx.tidy(() => void mx.eval(call()));
    const taken = performance.now() - start;
    if (taken >= ms) return taken / count;
  }
}

/** The figure of samples: their median, or the least of them; null of none. */
export function figureOf(times: readonly number[], least: boolean = false): number | null {
  return least && times.length > 0 ? Math.min(...times) : median(times);
}

/** Measures a case on the default device, beside it the reference if there is one; undefined if it is not for the device. */
export async function measureCase(
  c: OpCase,
  scale: number,
  effort: Effort,
  reference?: Reference<ReferenceName>,
): Promise<OpRow | undefined> {
  const size = sizeOf(c, mx.defaultDevice() === "wasm" ? "cpu" : "gpu", scale);
  if (size === undefined) return undefined;
  const inputs = c.inputs(size);
  await reference?.ask({ n: size, inputs: inputs.map((input, i) => ({ ...input, name: "abcdef"[i] })) });
  const timeOther = async (library: ReferenceName): Promise<number> =>
    (await reference!.ask<{ ms: number }>({ library, run: c[library], ms: effort.ms })).ms;
  const others = REFERENCES.filter((name) => reference && c[name] !== undefined);
  const times: Record<"vkmx" | ReferenceName, number[]> = { vkmx: [], mlx: [], numpy: [] };
  let missing: string | undefined;
  const x = inputs.map(randomArray);
  try {
    mx.eval(x);
    const call = () => c.call(x, size);
    for (let i = 0; i <= effort.samples; i++) { // the first one warms up
      if (missing === undefined) {
        try {
          times.vkmx.push(timeCalls(call, effort.ms));
        } catch (error) {
          missing = (error as Error).message;
          if (!(error instanceof MissingFunction)) missing = `refused: ${missing}`;
        }
      }
      for (const name of others) times[name].push(await timeOther(name));
      if (i === 0) Object.values(times).forEach((t) => t.splice(0));
    }
  } finally {
    mx.dispose(x);
  }
  const { vkmx, mlx, numpy } = times;
  const figure = (times: readonly number[]): number | null => figureOf(times, effort.least);
  const common = { case: c.name, size, work: c.work(size), mlx: figure(mlx), numpy: figure(numpy) };
  return missing === undefined ? { ...common, vkmx: figure(vkmx) } : { ...common, vkmx: null, missing };
}

/** GB/s that copying an array of so many bytes moves on the default device, read and written, the best of several. */
export async function copyBandwidth(bytes: number): Promise<number> {
  using x = mx.zeros([Math.ceil(bytes / 4)], mx.float32);
  mx.eval(x);
  let best = 0;
  for (let i = 0; i < 5; i++) {
    const { kernels: [kernel] } = await mx.profile(() => mx.tidy(() => mx.eval(mx.concatenate([x, x]))));
    best = Math.max(best, kernel.bytes / kernel.nanoseconds);
  }
  return best;
}
