/**
 * The Tensors of a value that hardly ever changes, such as a model: asking again costs a comparison of what its parts hold, not a walk.
 *
 * @module
 */

import { partsOf, reach } from "./scope.ts";
import type { Tensor } from "./tensor.ts";

/** An object, list, map or set on the way to Tensors, and what it held when it was walked. */
interface Visited {
  readonly part: object;
  readonly held: readonly unknown[];
}

/** All Tensors that a value reaches, as `tensorsOf` finds them, found anew where a part of the value holds something else than before. */
export class ReachedTensors {
  readonly #root: object;
  #visited: readonly Visited[] | undefined;
  #tensors: readonly Tensor[] = [];

  /** Of a value, whose parts may change. */
  constructor(root: object) {
    this.#root = root;
  }

  /** The Tensors now: the same list as long as nothing changed. */
  get tensors(): readonly Tensor[] {
    if (this.#visited?.every(isUnchanged)) return this.#tensors;
    const { found, seen } = reach(this.#root);
    this.#visited = [...seen].map((part) => ({ part, held: partsOf(part).slice() }));
    return this.#tensors = [...found];
  }
}

function isUnchanged({ part, held }: Visited): boolean {
  const parts = partsOf(part);
  if (parts.length !== held.length) return false;
  for (let i = 0; i < held.length; i++) if (parts[i] !== held[i]) return false;
  return true;
}
