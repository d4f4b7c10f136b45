/**
 * `mx.distributed`, as in MLX without a backend: one process, whose collectives return their input.
 *
 * @module
 */

import { quoted, ValueError } from "../../graph/error.ts";
import { RuntimeError } from "../../schedule/device_info.ts";
import type { AnyTensor } from "../tensor/tensor.ts";

const BACKENDS = ["any", "mpi", "nccl", "jaccl", "ring"];

/** Processes that compute together: here always one. */
export class Group {
  /** Number of this process. */
  rank(): number {
    return 0;
  }

  /** How many processes there are. */
  size(): number {
    return 1;
  }

  /** Parts of a group; throws a RuntimeError, since one process has none. */
  split(_color: number, _key: number = -1): Group {
    throw new RuntimeError("unavailable", "split", "a group of one process cannot be split further");
  }
}

/** Options of a collective. */
export interface CollectiveOptions {
  /** The group, as {@link init} gave it. */
  readonly group?: Group;
}

/** Whether processes can compute together: never. */
export function isAvailable(_backend: string = "any"): boolean {
  return false;
}

/**
 * The group of all processes, of size 1. With `strict` a RuntimeError, since no backend is there.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const group = mx.distributed.init();
 * mx.distributed.allSum(mx.ones([2]), { group }).tolist(); // [1, 1]
 * ```
 */
export function init(strict: boolean = false, backend: string = "any"): Group {
  if (!BACKENDS.includes(backend)) {
    throw new ValueError(`distributed.init() expected a backend of ${BACKENDS.join(", ")}: found ${quoted(backend)}`);
  }
  if (strict) throw new RuntimeError("unavailable", "init", "no backend for several processes is there");
  return new Group();
}

/** The sum over all processes: `x`. */
export function allSum<X extends AnyTensor>(x: X, _options: CollectiveOptions = {}): X {
  return x;
}

/** The largest values over all processes: `x`. */
export function allMax<X extends AnyTensor>(x: X, _options: CollectiveOptions = {}): X {
  return x;
}

/** The smallest values over all processes: `x`. */
export function allMin<X extends AnyTensor>(x: X, _options: CollectiveOptions = {}): X {
  return x;
}

/** The arrays of all processes along the first axis: `x`. */
export function allGather<X extends AnyTensor>(x: X, _options: CollectiveOptions = {}): X {
  return x;
}

/** The part of this process of the sum over all: `x`. */
export function sumScatter<X extends AnyTensor>(x: X, _options: CollectiveOptions = {}): X {
  return x;
}

function alone(verb: string): never {
  throw new ValueError(`a group of one process has no other process to ${verb}`);
}

/** Throws a ValueError: there is no process to send to. */
export function send(_x: AnyTensor, _dst: number, _options: CollectiveOptions = {}): never {
  return alone("send to");
}

/** Throws a ValueError: there is no process to receive from. */
export function recv(
  _shape: readonly number[],
  _dtype: unknown,
  _src: number,
  _options: CollectiveOptions = {},
): never {
  return alone("receive from");
}

/** Throws a ValueError: there is no process to receive from. */
export function recvLike(_x: AnyTensor, _src: number, _options: CollectiveOptions = {}): never {
  return alone("receive from");
}
