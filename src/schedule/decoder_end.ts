/**
 * The end of a decoder's step: the token, chosen from what the head leaves, and the new state of a loop.
 *
 * @module
 */

import type { Node } from "../graph/node.ts";
import type { Lowering, Value } from "./lowering.ts";

/** New values of a loop's state, by the parameter that they replace. */
export interface StepEnd {
  /** The token. */
  readonly next: StateUpdate;
  /** Position + 1. */
  readonly position: StateUpdate;
  /** An array with the token written at position + 1 modulo its size. */
  readonly log: StateUpdate | undefined;
}

/** A parameter and the node that replaces it. */
export interface StateUpdate {
  readonly parameter: Node;
  readonly value: Node;
}

const THREADS = 256;

/**
 * Emits the choice of `token` among `best` (workgroups of the head, 2): it goes into a value of its own, or with `end` to where
 * the state's new values replace the old ones. `value` and `done` are those of the decoder.
 */
export function emitEnd(
  l: Lowering,
  best: Value,
  token: Node,
  end: StepEnd | undefined,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const chosen = end ? undefined : l.temporary(token.shape, token.dtype);
  const updates = [end?.next, end?.position, end?.log];
  const bound = updates.map((update) => update && value(update.parameter));
  l.emit("decode_pick", [best, chosen, ...bound], {
    threads: THREADS,
    spec: {},
    push: { count: best.shape[0], log_size: bound[2] ? bound[2].shape[0] : 1 },
    workgroups: 1,
  });
  if (chosen) done(token, chosen);
  updates.forEach((update, i) => update && done(update.value, bound[i]!));
}
