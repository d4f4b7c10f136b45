/**
 * Stops a training that diverged before its numbers reach a file.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";

function diverged(iteration: number, what: string): LlmError {
  const advice = "files that were saved before stay. Lower the learning rate, or check the data";
  return new LlmError("training", `${what} at iteration ${iteration}: the training diverged, ${advice}`);
}

/** Throws an {@link LlmError} if a number is NaN or infinite. */
export function checkFinite(iteration: number, value: number, name: string): void {
  if (!Number.isFinite(value)) throw diverged(iteration, `The ${name} is ${value}`);
}

/** Throws an {@link LlmError} that names the first array of a tree with a NaN or an infinity. Integers have none. */
export function checkFiniteArrays(iteration: number, tree: Readonly<Record<string, unknown>>, kind: string): void {
  const named = (mx.utils.treeFlatten(tree) as [string, Tensor][]).filter(([, x]) =>
    mx.issubdtype(x.dtype, mx.inexact)
  );
  if (named.length === 0) return;
  using all = mx.tidy(() => mx.stack(named.map(([, x]) => mx.all(mx.isfinite(x)))));
  const at = (all.tolist() as boolean[]).indexOf(false);
  if (at >= 0) throw diverged(iteration, `The ${kind} ${quoted(named[at][0])} has NaN or infinity`);
}
