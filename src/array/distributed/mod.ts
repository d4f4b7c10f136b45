/**
 * `mx.distributed`: arrays that processes compute together, as in MLX over MPI. Without MPI there is one process, whose collectives return
 * their input.
 *
 * A collective runs on the host when it is evaluated, and the program waits for it. All processes of a group make the same collectives in the
 * same order.
 *
 * @module
 */

import { RuntimeError } from "../../../ffi/error.ts";
import type { MpiGroup } from "../../../ffi/mpi/group.ts";
import { findMpi } from "../../../ffi/mpi/library.ts";
import { startedByMpi, startMpi } from "../../../ffi/mpi/start.ts";
import type { Communicator } from "../../graph/collective.ts";
import { bool, checkDtype, complex64, type Dtype, float32, uint8 } from "../../graph/dtype.ts";
import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { formatShape } from "../../graph/shape.ts";
import { reshapeNode } from "../ops/movement.ts";
import { max, min } from "../ops/reduce.ts";
import { castNode, fullNode, type TensorLike, toInteger, toNode, toShape } from "../tensor/convert.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import { collectiveNode, gatherNode, partOf } from "./nodes.ts";

const BACKENDS = ["any", "mpi", "nccl", "jaccl", "ring"];
/** Seconds that a process waits for others. */
const TIMEOUT = 600;

const communicators = new WeakMap<Group, MpiGroup>();

/** Processes that compute together; {@link init} gives all of them. */
export class Group {
  /** Number of this process. */
  rank(): number {
    return communicators.get(this)?.rank ?? 0;
  }

  /** How many processes there are. */
  size(): number {
    return communicators.get(this)?.size ?? 1;
  }

  /**
   * The processes that give the same `color`, in the order of `key`; those of this group without one. All processes of the group call it.
   * Throws a {@link RuntimeError} where there is one process.
   */
  split(color: number, key: number = -1): Group {
    const processes = communicators.get(this);
    if (!processes) {
      throw new RuntimeError("unavailable", "split", "a group of one process cannot be split further");
    }
    const [part, order] = [toInteger("split", "color", color), toInteger("split", "key", key)];
    if (part < 0) throw new ValueError(`split() expected a color of at least 0: found ${part}`);
    return groupOf(processes.split(part, order < 0 ? processes.rank : order));
  }
}

function groupOf(processes: MpiGroup): Group {
  const group = new Group();
  communicators.set(group, processes);
  return group;
}

/** Options of {@link init}. */
export interface InitOptions {
  /** Whether it throws where processes cannot compute together. Default true in programs that `mpirun` started, else false. */
  readonly strict?: boolean;
  /** "mpi" or "any"; MLX's others, "nccl", "jaccl" and "ring", are not there. Default "any". */
  readonly backend?: string;
  /** Seconds that a process waits for others before it throws a {@link RuntimeError} that names them. Default 600. */
  readonly timeout?: number;
}

/** Options of a collective. */
export interface CollectiveOptions {
  /** The group. Default all processes. */
  readonly group?: Group | undefined;
}

/** Whether there is a library for a backend: "mpi" or "any". */
export function isAvailable(backend: string = "any"): boolean {
  checkBackend("isAvailable", backend);
  return isMpi(backend) && typeof findMpi() !== "string";
}

function checkBackend(call: string, backend: string): void {
  if (BACKENDS.includes(backend)) return;
  const known = BACKENDS.join(", ");
  throw new ValueError(`distributed.${call}() expected a backend of ${known}: found ${quoted(backend)}`);
}

function isMpi(backend: string): boolean {
  return backend === "any" || backend === "mpi";
}

const INIT_OPTIONS = { strict: true, backend: true, timeout: true } as const satisfies Record<keyof InitOptions, true>;

let world: Group | undefined;

/**
 * The group of all processes. In a program that `mpirun` started these are its processes, else this one alone.
 *
 * Throws a {@link RuntimeError} if it is `strict` and there is no backend, or if the processes run different versions.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const group = mx.distributed.init(); // mpirun -n 2 deno run -A program.ts
 * mx.distributed.allSum(mx.ones([2]), { group }).tolist(); // [2, 2], and [1, 1] alone
 * ```
 */
export function init(options: InitOptions = {}): Group {
  checkOptions("distributed.init", options, INIT_OPTIONS);
  const { strict = startedByMpi(), backend = "any", timeout = TIMEOUT } = options;
  checkBackend("init", backend);
  if (!(timeout > 0)) throw new ValueError(`distributed.init() expected a timeout above 0 seconds: found ${timeout}`);
  if (world) return world;
  if (!isMpi(backend)) {
    if (strict) throw new RuntimeError("unavailable", "init", `there is no backend ${quoted(backend)}: use "mpi"`);
    return new Group();
  }
  if (!strict && (!startedByMpi() || typeof findMpi() === "string")) return new Group();
  return world = groupOf(startMpi(timeout));
}

/** The processes of a collective; undefined if there is one. */
function processesOf({ group = init() }: CollectiveOptions): MpiGroup | undefined {
  if (!(group instanceof Group)) throw new ValueError(`expected a group of distributed.init(): found ${quoted(group)}`);
  const processes = communicators.get(group);
  return processes && processes.size > 1 ? processes : undefined;
}

/**
 * The sum over all processes, in the shape and dtype of `x`. Sums of float16 and bfloat16 are computed in float32; bools are true where one
 * is. Evaluating it, or any other collective, throws a {@link RuntimeError} if a process does not come in time or makes another call.
 */
export function allSum<X extends AnyTensor>(x: X, options: CollectiveOptions = {}): X {
  return reduced("sum", x, options);
}

/** The largest values over all processes, in the shape and dtype of `x`. */
export function allMax<X extends AnyTensor>(x: X, options: CollectiveOptions = {}): X {
  return reduced("max", x, options);
}

/** The smallest values over all processes, in the shape and dtype of `x`. */
export function allMin<X extends AnyTensor>(x: X, options: CollectiveOptions = {}): X {
  return reduced("min", x, options);
}

/** The arrays of all processes, of one shape, joined along the first axis; numbers become an array of one axis. */
export function allGather<X extends AnyTensor>(x: X, options: CollectiveOptions = {}): X {
  const node = toNode("allGather", x);
  const processes = processesOf(options);
  return (processes ? wrap(gatherNode(node, processes)) : x) as X;
}

/**
 * The part of this process of the sum over all: the first axis is cut into equal parts, in the order of processes. Throws a
 * {@link ShapeError} if it cannot be cut so.
 */
export function sumScatter<X extends AnyTensor>(x: X, options: CollectiveOptions = {}): X {
  const node = toNode("sumScatter", x);
  const processes = processesOf(options);
  if (!processes) return x;
  const [first = 0, ...rest] = node.shape;
  if (node.shape.length === 0 || first % processes.size !== 0) {
    throw new ShapeError(
      `sumScatter() expected a first axis of a multiple of ${processes.size}: found ${formatShape(node.shape)}`,
    );
  }
  const { dtype, kind, exchanged } = exchangeOf("sum", node);
  const shape = [first / processes.size, ...rest];
  const made = kind === "sum"
    ? collectiveNode("sumScatter", exchanged, shape, processes)
    : partOf(collectiveNode(kind, exchanged, node.shape, processes), shape, processes.rank);
  return wrap(castNode(made, dtype)) as X;
}

/**
 * Sends an array to process `dst` when the result is evaluated, which is the array. Throws a {@link ValueError} if there is no such other
 * process.
 */
export function send<X extends AnyTensor>(x: X, dst: number, options: CollectiveOptions = {}): X {
  const node = toNode("send", x);
  const processes = processesOf(options);
  if (!processes) throw new ValueError("a group of one process has no other process to send to");
  return wrap(collectiveNode("send", node, node.shape, processes, peerOf("send", dst, processes))) as X;
}

/** An array of a shape and dtype that process `src` sends. Throws a {@link ValueError} if there is no such other process. */
export function recv(shape: readonly number[], dtype: Dtype, src: number, options: CollectiveOptions = {}): Tensor {
  const processes = processesOf(options);
  if (!processes) throw new ValueError("a group of one process has no other process to receive from");
  checkDtype(dtype, "recv");
  const to = toShape("recv", shape);
  return wrap(collectiveNode("receive", fullNode(0, [0], dtype), to, processes, peerOf("recv", src, processes)));
}

/** An array of the shape and dtype of `x` that process `src` sends; see {@link recv}. */
export function recvLike<X extends TensorLike>(x: X, src: number, options: CollectiveOptions = {}): Tensor {
  const { shape, dtype } = toNode("recvLike", x);
  return recv(shape, dtype, src, options);
}

function peerOf(call: string, value: number, { rank, size }: Communicator): number {
  const peer = toInteger(call, "rank", value);
  if (peer >= 0 && peer < size && peer !== rank) return peer;
  throw new ValueError(`${call}() expected another rank than ${rank}, of 0 to ${size - 1}: found ${value}`);
}

function reduced<X extends AnyTensor>(fn: "sum" | "min" | "max", x: X, options: CollectiveOptions): X {
  const node = toNode(CALLS[fn], x);
  const processes = processesOf(options);
  if (!processes) return x;
  if (node.dtype === complex64 && fn !== "sum") {
    const all = wrap(gatherNode(reshapeNode(node, [1, ...node.shape]), processes)); // MPI has no order of these
    return (fn === "max" ? max(all, 0) : min(all, 0)) as AnyTensor as X;
  }
  const { dtype, kind, exchanged } = exchangeOf(fn, node);
  return wrap(castNode(collectiveNode(kind, exchanged, node.shape, processes), dtype)) as X;
}

const CALLS = { sum: "allSum", min: "allMin", max: "allMax" } as const;

/** What is exchanged instead of numbers that MPI does not reduce: halves as float32, bools as bytes. */
function exchangeOf(fn: "sum" | "min" | "max", node: Node): {
  readonly dtype: Dtype;
  readonly kind: "sum" | "min" | "max";
  readonly exchanged: Node;
} {
  const { dtype } = node;
  if (dtype === bool) return { dtype, kind: fn === "sum" ? "max" : fn, exchanged: castNode(node, uint8) };
  const isHalf = dtype.kind === "float" && dtype.bytes === 2;
  return { dtype, kind: fn, exchanged: isHalf ? castNode(node, float32) : node };
}
