/**
 * A training that tests/distributed runs in one process and in several. Its model is an embedding and a linear layer. The examples have different
 * lengths, and one has no token that the loss counts. Process 0 prints the losses and the trained values.
 *
 * @module
 */

import * as mx from "../../../mod.ts";

/** A language model of two layers, without draws. */
class Model extends mx.nn.Module {
  table = new mx.nn.Embedding(24, 16);
  head = new mx.nn.Linear(16, 24);

  override forward(x: mx.Tensor): mx.Tensor {
    return this.head.forward(mx.tanh(this.table.forward(x)));
  }
}

const SET = Array.from({ length: 13 }, (_, i) => ({
  tokens: Array.from({ length: 5 + 7 * i }, (_, j) => (5 * i + 3 * j) % 24),
  offset: i === 3 ? 26 : i % 3,
}));

/** How it trains. */
export interface TrainCase {
  readonly iters: number;
  readonly accumulate: number;
  readonly folder: string;
  readonly resume?: string;
}

/** The losses, and every seventh trained value. */
export interface TrainOutcome {
  readonly train: readonly (readonly [number, number])[];
  readonly valid: readonly (readonly [number, number])[];
  readonly trainedTokens: number;
  readonly values: readonly number[];
  readonly saves: number;
}

/** Trains in all processes. */
export async function trainCase({ iters, accumulate, folder, resume }: TrainCase): Promise<TrainOutcome> {
  mx.random.seed(4);
  const model = new Model();
  let saves = 0;
  const { train, valid, trainedTokens } = await mx.lm.tuner.train(
    model,
    new mx.optimizers.AdamW({ learningRate: 0.02 }),
    SET,
    {
      valDataset: SET.slice(0, 9),
      args: {
        batchSize: 4,
        iters,
        stepsPerReport: 1,
        stepsPerEval: 5,
        stepsPerSave: 5,
        gradAccumulationSteps: accumulate,
        adapterFile: `${folder}/adapters.safetensors`,
      },
      callback: { onSave: () => saves++ },
      ...(resume !== undefined && { resume }),
    },
  );
  const trained = mx.utils.treeFlatten(model.trainableParameters()).map(([, array]) => array as mx.Tensor);
  const values = trained.flatMap((array) => (array.reshape(-1).tolist() as number[]).filter((_, i) => i % 7 === 0));
  return { train, valid, trainedTokens, values, saves };
}

if (import.meta.main) {
  const outcome = await trainCase(JSON.parse(Deno.args[0]) as TrainCase);
  const saves = mx.distributed.allGather(mx.array([outcome.saves])).tolist();
  if (mx.distributed.init().rank() === 0) console.log(JSON.stringify({ ...outcome, saves }));
}
