/**
 * Parts of parameters: what a process of a group has of them.
 *
 * @module
 */

import { rowsOf } from "../../array/files/rows.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { scoped } from "../../array/tensor/scope.ts";
import { quoted } from "../../graph/error.ts";
import { formatShape } from "../../graph/shape.ts";
import type { Module, ModuleTree } from "../module.ts";

/** How a linear layer is divided: by its outputs, or by its inputs. */
export type Sharding = "all-to-sharded" | "sharded-to-all";

/**
 * The matrices that are joined in one, each of which is divided: how many of equal size, or where they end. The ends are indices, or
 * fractions of the axis.
 */
export type Segments = number | readonly number[];

/** The axis along which a parameter is divided, with its segments if there are several; undefined for one that stays whole. */
export type ShardingPredicate = (
  path: string,
  weight: Tensor,
) => number | readonly [axis: number, segments: Segments] | undefined;

/** Options of sharding. */
export interface ShardOptions {
  /** The matrices that are joined in one, such as 3 for queries, keys and values. Default 1. */
  readonly segments?: Segments | undefined;
  /** The processes that each get a part. Default all processes. */
  readonly group?: mx.distributed.Group | undefined;
}

/** Where the segments of an axis end. */
function endsOf(segments: Segments, size: number): number[] {
  if (typeof segments === "number") return Array.from({ length: segments }, (_, i) => size * (i + 1) / segments);
  const inside = Number.isInteger(segments[0]) ? segments : segments.map((part) => Math.floor(part * size));
  return [...inside, size];
}

/** The part of the process of an array: the part of each segment along an axis, joined. Rows of a file are read alone. */
function partOf(
  path: string,
  whole: Tensor,
  along: number,
  segments: Segments,
  group: mx.distributed.Group,
): Tensor {
  const [rank, processes] = [group.rank(), group.size()];
  const axis = along < 0 ? along + whole.shape.length : along;
  const size = whole.shape[axis];
  const parts: Tensor[] = [];
  let begin = 0;
  for (const end of endsOf(segments, size)) {
    const part = (end - begin) / processes;
    if (!Number.isInteger(begin) || !Number.isInteger(part) || part < 0) {
      const what = segments === 1 ? "" : `, segments ${JSON.stringify(segments)},`;
      throw new mx.ValueError(
        `"${path}" of shape ${
          formatShape(whole.shape)
        }${what} cannot be divided by ${processes} processes along axis ${axis}`,
      );
    }
    const first = begin + rank * part;
    parts.push(
      axis === 0
        ? rowsOf(whole, first, part)
        : whole.index(...whole.shape.slice(0, axis).map(() => mx.Slice()), mx.Slice(first, first + part)),
    );
    begin = end;
  }
  return parts.length > 1 ? mx.concatenate(parts, axis) : axis === 0 ? parts[0] : mx.contiguous(parts[0]);
}

/** A tree of parameters with the parts of this process. Throws a ValueError for a parameter that cannot be divided equally. */
export function shardParameters(
  parameters: ModuleTree,
  predicate: ShardingPredicate,
  group: mx.distributed.Group = mx.distributed.init(),
): ModuleTree {
  return mx.utils.treeMapWithPath((path: string, weight: unknown) => {
    if (!(weight instanceof mx.Tensor)) return weight;
    const found = predicate(path, weight as Tensor);
    if (found === undefined) return weight;
    const [axis, segments] = typeof found === "number" ? [found, 1] : found;
    return scoped(() => partOf(path, weight as Tensor, axis, segments, group)); // no view keeps the whole array
  }, parameters) as ModuleTree;
}

/** The predicate of a linear layer. Outputs are rows of matrices, codes, scales and biases of codes; a bias of outputs is a vector. */
export function predicateOf(sharding: Sharding, segments: Segments = 1): ShardingPredicate {
  switch (sharding) {
    case "all-to-sharded":
      return (path, { shape }) => [path.endsWith("bias") ? -1 : Math.max(shape.length - 2, 0), segments];
    case "sharded-to-all":
      return (path) => path.endsWith("bias") ? undefined : [-1, segments];
    default:
      throw new mx.ValueError(
        `sharding expected "all-to-sharded" or "sharded-to-all": found ${quoted(sharding)}`,
      );
  }
}

/**
 * Puts the parts of this process in the places of a module's parameters. A function gets the path and the array of each, and returns the axis
 * that is divided, with its segments if it has several. No layer exchanges anything afterwards that did not before; see {@link shardLinear}.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const experts = new mx.nn.Linear(64, 32);
 * mx.nn.shardInplace(experts, "all-to-sharded");
 * experts.weight.shape; // [32 / processes, 64]
 * ```
 */
export function shardInplace(
  module: Module,
  sharding: Sharding | ShardingPredicate,
  { segments, group }: ShardOptions = {},
): void {
  const predicate = typeof sharding === "function" ? sharding : predicateOf(sharding, segments);
  module.update(shardParameters(module.parameters(), predicate, group));
}

/** The part of a size that each process has. Throws a ValueError if it cannot be divided. */
export function partSize(layer: string, what: "inputs" | "outputs", size: number, group: mx.distributed.Group): number {
  const processes = group.size();
  if (size % processes === 0) return size / processes;
  throw new mx.ValueError(`${layer}() expected ${what} of a multiple of ${processes} processes: found ${size}`);
}

const summed = new WeakMap<mx.distributed.Group, (x: Tensor) => Tensor>();

/** x, whose cotangent is the sum of those of all processes: each of them has a part of what x is used for. */
export function sumGradients(x: Tensor, group: mx.distributed.Group): Tensor {
  if (group.size() === 1) return x;
  let identity = summed.get(group);
  if (!identity) {
    identity = mx.customFunction((x: Tensor) => x)
      .vjp((_: Tensor, cotangent: Tensor) => mx.distributed.allSum(cotangent, { group }));
    summed.set(group, identity);
  }
  return identity(x);
}
