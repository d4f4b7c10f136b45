/**
 * Exchanges between the processes that train together. Each has a part of every batch. In a group of one nothing is exchanged.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import * as nn from "../../nn/mod.ts";
import type { Dataset } from "./datasets.ts";

type Group = mx.distributed.Group;

/** The loss, tokens and gradients of a batch. */
type Measured = readonly [value: Tensor, tokens: Tensor, gradients: nn.ModuleTree];

/** Whether a signal of any process asks for the end. All processes ask at the same places, so that none waits for one that ended. */
export function endsAnywhere(group: Group, signal: AbortSignal | undefined): boolean {
  const ends = signal?.aborted ?? false;
  if (group.size() === 1) return ends;
  return Number(mx.distributed.allMax(mx.array(ends ? 1 : 0, mx.int32), { group }).item()) > 0;
}

/** The sums over all processes of losses and of tokens. */
export function totalOf(group: Group, sum: number, count: number): { readonly sum: number; readonly count: number } {
  if (group.size() === 1) return { sum, count };
  const [losses, tokens] = [mx.array(sum), mx.array(count, mx.int32)] as const;
  return {
    sum: Number(mx.distributed.allSum(losses, { group }).item()),
    count: Number(mx.distributed.allSum(tokens, { group }).item()),
  };
}

/**
 * The mean loss of a token and the tokens of a whole batch, from those of each process's part. The gradients of a part are scaled by its share of
 * the tokens, times the number of processes. Their mean over processes is then the gradient of the batch.
 */
export function weighByTokens(group: Group, [value, tokens, gradients]: Measured): Measured {
  const processes = group.size();
  if (processes === 1) return [value, tokens, gradients];
  const counts = mx.greater(tokens, 0); // a part without tokens has a loss of 0 / 0
  const lost = mx.where(counts, mx.multiply(value, tokens), 0);
  const all = mx.distributed.allSum(tokens, { group });
  const weight = mx.divide(mx.multiply(tokens, processes), all);
  const weigh = (gradient: Tensor): Tensor => mx.where(counts, mx.multiply(gradient, weight), 0).astype(gradient.dtype);
  return [
    mx.divide(mx.distributed.allSum(lost, { group }), all),
    all,
    mx.utils.treeMap(weigh, gradients) as nn.ModuleTree,
  ];
}

/**
 * Gradients that wait for more, as a checkpoint has them: their mean. Each process may go on from it, however many there are. The given ones are
 * disposed of if others are returned.
 */
export function gatherWaiting(group: Group, gradients: nn.ModuleTree | null): nn.ModuleTree | null {
  if (gradients === null || group.size() === 1) return gradients;
  const mean = nn.averageGradients(gradients, { group });
  mx.eval(mean);
  mx.dispose(gradients);
  return mean;
}

/** Facts that all processes must begin with. */
interface Start {
  readonly iteration: number;
  readonly iters: number;
  readonly datasets: readonly Dataset[];
}

/** Throws a ValueError if processes begin with other data, other parameters or at another place. */
export function checkEqualStart(group: Group, model: nn.Module, { iteration, iters, datasets }: Start): void {
  if (group.size() === 1) return;
  const arrays = mx.utils.treeFlatten(model.trainableParameters()).map(([, array]) => array as Tensor);
  const sums = arrays.map((array): Tensor => mx.sum(mx.abs(array.astype(mx.float32))));
  const facts: Readonly<Record<string, number>> = {
    "iterations to do": iters,
    "iterations that are done": iteration,
    "examples": datasets.reduce((sum, set) => sum + set.length, 0),
    "tokens of examples": datasets.reduce((sum, set) => sum + set.reduce((n, { tokens }) => n + tokens.length, 0), 0),
    "number of trained values": arrays.reduce((sum, { size }) => sum + size, 0),
    "sum of trained values": sums.length === 0 ? 0 : Number(mx.sum(mx.stack(sums)).item()),
  };
  const own = mx.array(Object.values(facts));
  const all = mx.distributed.allGather(own.reshape(1, -1), { group }).tolist() as number[][];
  Object.keys(facts).forEach((name, i) => {
    const found = all.map((row) => row[i]);
    // Devices round sums differently.
    const differs = found.findIndex((value) => Math.abs(value - found[0]) > 1e-5 * Math.abs(found[0]));
    if (differs < 0) return;
    throw new mx.ValueError(
      `train() expected processes with the same ${name}: found ${found[0]} on rank 0 and ${
        found[differs]
      } on rank ${differs}`,
    );
  });
}
