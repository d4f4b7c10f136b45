/**
 * The compiled steps of a training: gradients of a batch, and the update by them.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import * as nn from "../../nn/mod.ts";
import type { Loss, TrainableModel } from "./loss.ts";
import { weighByTokens } from "./processes.ts";

/**
 * The compiled forward and backward pass: the loss of a batch, its tokens, and its gradients added to those of the batches before. The
 * gradients are those of this process's part of the batch.
 */
export function compileGradients(
  model: TrainableModel,
  loss: Loss,
  group: mx.distributed.Group,
): mx.Compiled<
  [batch: readonly [Tensor, Tensor], before: nn.ModuleTree | null],
  [value: Tensor, tokens: Tensor, gradients: nn.ModuleTree]
> {
  const lossAndGradients = nn.valueAndGrad(model, (tokens: Tensor, lengths: Tensor) => loss(model, tokens, lengths));
  const state = [model.state, mx.random.state];
  return mx.compile(
    (batch, before) => {
      const [[partValue, partTokens], partFound] = lossAndGradients(...batch);
      const [value, tokens, found] = weighByTokens(group, [partValue, partTokens, partFound]);
      const sum = before === null
        ? found
        : mx.utils.treeMap((a: Tensor, b: Tensor) => mx.add(a, b), found, [before]) as nn.ModuleTree;
      return [value, tokens, sum];
    },
    state,
    state,
  );
}

/**
 * The compiled update of the parameters by the mean of gradients of `count` batches, and of all processes. It is apart from {@link compileGradients}
 * because the host first looks at the loss. A loss that is not finite, or of no token, must not change parameters.
 */
export function compileUpdate(
  model: TrainableModel,
  optimizer: mx.optimizers.Optimizer,
  group: mx.distributed.Group,
): mx.Compiled<[sum: nn.ModuleTree, count: number], []> {
  const state = [model.state, optimizer.state];
  return mx.compile(
    (sum, count) => {
      const mean = count === 1 ? sum : mx.utils.treeMap((g: Tensor) => mx.divide(g, count), sum) as nn.ModuleTree;
      optimizer.update(model, nn.averageGradients(mean, { group }));
      return [];
    },
    state,
    state,
  );
}
