/**
 * The global random state: one key that every draw without a key splits.
 *
 * It lives on the host, so drawing never waits for a device. A function that is compiled with the state among its inputs splits an array
 * instead. The split key stays on the device until the host needs it.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import { ShapeError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { formatShape, sameShape } from "../../graph/shape.ts";
import { dataNode, type TensorLike, toNode } from "../tensor/convert.ts";
import { type Key, KeySequence } from "./keys.ts";
import { reshapeNode, sliceNode } from "../ops/movement.ts";
import { nodeOf, Tensor, wrap } from "../tensor/tensor.ts";

let sequence: KeySequence | undefined;
/** The key if it is an array: of a function that is being traced, or that ran and left it. */
let array: Node | undefined;

/** A key as an array. */
export function keyNode(key: Key): Node {
  return dataNode(new Uint8Array(Uint32Array.from(key).buffer), [2], uint32);
}

/** The state on the host. */
function onHost(): KeySequence {
  sequence ??= new KeySequence();
  if (array) {
    const [a, b] = wrap(array).toTypedArray() as Uint32Array;
    sequence.key = [a, b];
    hold(undefined);
  }
  return sequence;
}

function hold(key: Node | undefined): void {
  key?.retain();
  array?.release();
  array = key;
}

/** Starts the state at a seed. */
export function seedState(seed: number | bigint): void {
  sequence = new KeySequence(seed);
  hold(undefined);
}

/** The next key of the state: one half of it, the other stays. */
export function nextKey(): Node {
  if (!array || array.stored) return keyNode(onHost().next());
  const words = makeNode("randomBits", [array], [2, 2], uint32, {});
  const [left, drawn] = [0, 1].map((i) => reshapeNode(sliceNode(words, [i, 0], [1, 1], [1, 2]), [2]));
  hold(left);
  return drawn;
}

/** The global random state, a list of one key as in MLX: a key that is put back draws the same numbers again. */
export class RandomState {
  /** How many arrays there are. */
  readonly length = 1;

  /** The key that the next draw splits. */
  get 0(): Tensor<"uint32", 1> {
    return wrap(array ?? keyNode(onHost().key));
  }

  set 0(key: TensorLike) {
    const node = toNode("state", key, uint32);
    if (node.dtype !== uint32 || !sameShape(node.shape, [2])) {
      const found = `${node.dtype.name} of shape ${formatShape(node.shape)}`;
      throw new ShapeError(`state() expected a key, uint32 of shape (2,): found ${found}`);
    }
    hold(node);
    onHost();
  }

  /** The arrays. */
  *[Symbol.iterator](): Generator<Tensor<"uint32", 1>> {
    yield this[0];
  }
}

/**
 * The global random state, a list of one key.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const kept = mx.random.state[0];
 * const a = mx.random.normal([3]);
 * mx.random.state[0] = kept;
 * mx.arrayEqual(a, mx.random.normal([3])).item(); // true
 * ```
 */
export const state: RandomState = new RandomState();

/** The state at some time: a key on the host, or an array that a compiled function left. */
export type RandomStateThen = Key | Tensor;

/** The state as it is now. */
export function stateNow(): RandomStateThen {
  return array ? wrap(array) : onHost().key;
}

function putBack(state: RandomStateThen): void {
  if (state instanceof Tensor) return hold(nodeOf(state));
  hold(undefined);
  onHost().key = state;
}

/** Runs a function with the state as it was; afterwards it is as before. */
export function drawingAgain<T>(then: RandomStateThen, fn: () => T): T {
  const now = stateNow();
  putBack(then);
  try {
    return fn();
  } finally {
    putBack(now);
  }
}

/** Makes an array the state, without reading it: for functions that are traced, and for what they leave. */
export function holdState(key: Node): void {
  hold(key);
}
