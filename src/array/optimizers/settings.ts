/**
 * Arguments of optimizers: options in MLX's order; the last argument may be an object that names them.
 *
 * @module
 */

import { quoted, ValueError } from "../../graph/error.ts";
import { checkOptions } from "../../graph/options.ts";
import { Tensor } from "../tensor/tensor.ts";
import { isBranch } from "../tensor/tree.ts";
import type { LearningRate } from "./optimizer.ts";

/** Arguments of an optimizer: an object with options, or the learning rate and then an object or the others in MLX's order. */
export type Settings<O, P extends readonly unknown[]> =
  | [options: O]
  | [learningRate: LearningRate, options?: Omit<O, "learningRate">]
  | [learningRate: LearningRate, ...P];

function checkSetting(op: string, name: string, value: unknown, like: unknown): void {
  const kind = typeof like;
  if (name === "learningRate") {
    if (value === null || typeof value === "number" || typeof value === "function" || value instanceof Tensor) return;
    throw new ValueError(
      `${op}() expected learningRate to be a number, an array or a schedule: found ${quoted(value)}`,
    );
  }
  if (Array.isArray(like)) {
    const right = Array.isArray(value) && value.length === like.length && value.every((v) => typeof v === "number");
    if (!right) throw new ValueError(`${op}() expected ${name} to be ${like.length} numbers: found ${quoted(value)}`);
  } else if (like !== null && typeof value !== kind) {
    throw new ValueError(`${op}() expected ${name} to be a ${kind}: found ${quoted(value)}`);
  }
}

/**
 * The settings that arguments name; `defaults` has all of them, in order, with the learning rate first. A learning rate whose default is
 * undefined must be given.
 */
export function settingsOf<S extends object>(op: string, defaults: S, given: readonly unknown[]): S {
  const names = Object.keys(defaults);
  const last = given.at(-1);
  const named = isBranch(last) && !Array.isArray(last) ? last as Record<string, unknown> : undefined;
  const inOrder = named ? given.slice(0, -1) : given;
  if (inOrder.length > names.length) {
    throw new ValueError(`${op}() takes ${names.length} arguments (${names.join(", ")}): found ${inOrder.length}`);
  }
  checkOptions(op, named ?? {}, Object.fromEntries(names.map((name) => [name, true as const])));
  const found = { ...defaults } as Record<string, unknown>;
  const set = (name: string, value: unknown): void => {
    if (value === undefined) return;
    checkSetting(op, name, value, (defaults as Record<string, unknown>)[name]);
    found[name] = value;
  };
  inOrder.forEach((value, i) => set(names[i], value));
  for (const [name, value] of Object.entries(named ?? {})) {
    if (inOrder[names.indexOf(name)] !== undefined) throw new ValueError(`${op}() got ${name} twice`);
    set(name, value);
  }
  if (
    found.learningRate === undefined ||
    (found.learningRate === null && (defaults as Record<string, unknown>).learningRate !== null)
  ) {
    throw new ValueError(`${op}() needs a learningRate: a number, an array or a schedule`);
  }
  return found as S;
}

/** Throws unless a setting is in its `range`. */
export function checkRange(op: string, name: string, value: number, right: boolean, range: string): void {
  if (!right) throw new ValueError(`${op}() expected ${name} to be ${range}: found ${value}`);
}
