/**
 * Rules of random words, and of numbers made of them at once.
 *
 * @module
 */

import type { Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

/** Random words of a key, or of each of several: a word an element. */
export function randomWords(l: Lowering, kernel: "random_bits" | "random_normal", node: Node, key: Value): Value {
  const out = l.temporary(node.shape, node.dtype);
  const keys = sizeOf(key.shape) / 2;
  const words = sizeOf(node.shape) / keys;
  l.emit(kernel, [l.contiguous(key), out], {
    spec: {},
    push: { keys, words_per_key: words },
    workgroups: l.groups(keys * Math.ceil(words / 2)),
  });
  return out;
}
