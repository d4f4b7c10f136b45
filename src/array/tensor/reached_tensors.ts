/**
 * The Tensors of a value that hardly ever changes, such as a model. A repeated query compares the contents of its parts instead of walking it.
 *
 * @module
 */

import { reach, valuesIn } from "./scope.ts";
import type { Tensor } from "./tensor.ts";

/** An object, list, map or set on the way to Tensors, and what it held when it was walked. */
interface Visited {
  readonly part: object;
  readonly held: readonly unknown[];
}

/** The result of a walk. */
interface Walk {
  readonly visited: readonly Visited[];
  readonly tensors: readonly Tensor[];
}

/** All Tensors that a value reaches, as `tensorsOf` finds them, found anew where a part of the value holds something else than before. */
export class ReachedTensors {
  readonly #root: object;
  /** Held weakly: a Tensor that was replaced since is not kept by it when the garbage collector comes by. */
  #last: WeakRef<Walk> | undefined;

  /** Of a value, whose parts may change. */
  constructor(root: object) {
    this.#root = root;
  }

  /** The Tensors now: the same list as long as nothing changed and the garbage collector did not take it. */
  get tensors(): readonly Tensor[] {
    const last = this.#last?.deref();
    if (last?.visited.every(isUnchanged)) return last.tensors;
    const { found, seen } = reach(this.#root);
    const visited = [...seen].map((part) => ({ part, held: valuesIn(part).slice() }));
    const tensors = [...found];
    this.#last = new WeakRef({ visited, tensors });
    return tensors;
  }
}

/**
 * Whether a part holds what it held. A model has hundreds of parts, so no list of their values is made. Properties of a prototype that can
 * be enumerated count as a change, which only costs another walk.
 */
function isUnchanged({ part, held }: Visited): boolean {
  let at = 0;
  if (Array.isArray(part) || part instanceof Map || part instanceof Set) {
    for (const value of valuesIn(part)) if (at === held.length || value !== held[at++]) return false;
    return at === held.length;
  }
  const values = part as Readonly<Record<string, unknown>>;
  for (const key in values) {
    if (at === held.length || values[key] !== held[at++]) return false;
  }
  return at === held.length;
}
