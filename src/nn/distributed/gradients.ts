/**
 * Gradients of several processes: averaged over all, or clipped by the norm of all.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { checkOptions } from "../../graph/options.ts";
import { arraysOf, checkArrays, withArrays } from "../../array/tensor/tree.ts";

/** Bytes that are exchanged at once, about. */
const EXCHANGED_BYTES = 32 * 2 ** 20;

/** Options of {@link averageGradients}. */
export interface AverageGradientsOptions {
  /** The processes. Default all. */
  readonly group?: mx.distributed.Group | undefined;
  /** Small arrays are exchanged together until they have as many bytes; 0 exchanges each by itself. Default 32 MiB. */
  readonly allReduceSize?: number;
}

const AVERAGE_OPTIONS = { group: true, allReduceSize: true } as const satisfies Record<
  keyof AverageGradientsOptions,
  true
>;

/**
 * The mean of gradients over processes, in the tree of the given ones. All processes call it with trees of one form. In a group of one it
 * returns the gradients.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const model = new mx.nn.Linear(2, 1);
 * const loss = (x: mx.Tensor) => mx.mean(model.forward(x));
 * const [, grads] = mx.nn.valueAndGrad(model, loss)(mx.ones([4, 2])); // each process has a part of the batch
 * new mx.optimizers.SGD(0.1).update(model, mx.nn.averageGradients(grads));
 * ```
 */
export function averageGradients<T>(gradients: T, options: AverageGradientsOptions = {}): T {
  checkOptions("averageGradients", options, AVERAGE_OPTIONS);
  checkArrays("averageGradients", "gradients", gradients);
  const { group = mx.distributed.init(), allReduceSize = EXCHANGED_BYTES } = options;
  const size = group.size();
  if (size === 1) return gradients;
  const arrays = arraysOf(gradients);
  const mean = (array: Tensor): Tensor => mx.divide(mx.distributed.allSum(array, { group }), size);
  const made: Tensor[] = [];
  for (const part of together(arrays, allReduceSize)) {
    if (part.length === 1) {
      made.push(mean(part[0]));
      continue;
    }
    let end = 0;
    const ends = part.map((array) => end += array.size);
    const joined = mean(mx.concatenate(part.map((array) => array.reshape(-1))));
    const pieces = mx.split(joined, ends.slice(0, -1));
    made.push(...pieces.map((piece, i) => piece.reshape([...part[i].shape])));
  }
  return withArrays(gradients, made) as T;
}

/** Arrays in runs of one dtype that reach a number of bytes. */
function together(arrays: readonly Tensor[], most: number): Tensor[][] {
  const runs: Tensor[][] = [];
  let [bytes, dtype]: [number, Dtype | undefined] = [Infinity, undefined];
  for (const array of arrays) {
    if (bytes >= most || array.dtype !== dtype) {
      runs.push([]);
      [bytes, dtype] = [0, array.dtype];
    }
    runs.at(-1)!.push(array);
    bytes += array.nbytes;
  }
  return runs;
}

/**
 * Clips gradients of which each process has a part: they are scaled so that the norm of all parts together is at most `maxNorm`. Gives the
 * scaled part and that norm, before it was scaled.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [clipped, norm] = mx.nn.clipGradNormSharded({ w: mx.array([3, 4]) }, 1);
 * [norm.item(), clipped.w.shape]; // [5, [2]]
 * ```
 */
export function clipGradNormSharded<T>(
  gradients: T,
  maxNorm: number,
  { group }: mx.distributed.CollectiveOptions = {},
): [T, Tensor] {
  checkArrays("clipGradNormSharded", "gradients", gradients);
  const arrays = arraysOf(gradients);
  const squares = arrays.map((array): Tensor => mx.sum(mx.square(array)));
  const total = squares.reduce((sum, square) => mx.add(sum, square), mx.array(0) as Tensor);
  const norm = mx.sqrt(mx.distributed.allSum(total, { group }));
  const factor = mx.minimum(mx.divide(maxNorm, mx.add(norm, 1e-6)), 1);
  return [withArrays(gradients, arrays.map((array) => mx.multiply(array, factor))) as T, norm];
}
