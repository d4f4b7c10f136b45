/**
 * Trainings that must not save. Batches without a token that the loss counts change nothing. NaN or infinity in a loss,
 * parameters or an optimizer's state ends the training before a file is written.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";

mx.devices(); // opens the Vulkan library outside of any test

const { tuner } = mx.lm;

/** A language model of two matrices. */
class Model extends mx.nn.Module {
  table = new mx.nn.Embedding(24, 16);
  head = new mx.nn.Linear(16, 24);

  override forward(x: mx.Tensor): mx.Tensor {
    return this.head.forward(mx.tanh(this.table.forward(x)));
  }
}

const MAX = 16;
const tokensOf = (i: number, length: number): number[] => Array.from({ length }, (_, j) => (5 * i + 3 * j) % 24);

/** Two examples whose prompts reach the limit of 16 tokens, two of which tokens count. */
const SET = [
  { tokens: tokensOf(0, 6), offset: 2 }, // targets 2 to 5 and the one after the example
  { tokens: tokensOf(1, 9), offset: 8 }, // targets 8 and 9
  { tokens: tokensOf(2, 20), offset: 16 },
  { tokens: tokensOf(3, 40), offset: 30 },
];
const COUNTED = new Map([[6, 5], [9, 2], [16, 0]]);
const MASKED = SET.slice(2);

const ARGS = {
  batchSize: 1,
  iters: 8,
  maxSeqLength: MAX,
  stepsPerReport: 1,
  stepsPerEval: 2,
  stepsPerSave: 4,
  seed: 1,
};

const flat = (tree: unknown): number[] =>
  (mx.utils.treeFlatten(tree) as [string, mx.Tensor][]).flatMap(([, x]) => x.flatten().tolist() as number[]);

async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** A training into a folder whose files must stay as they are. */
async function refused(
  work: (adapterFile: string) => Promise<unknown>,
  // deno-lint-ignore no-explicit-any -- constructors of errors differ
  errorClass: abstract new (...args: any[]) => Error,
  message: string,
): Promise<void> {
  await inFolder(async (folder) => {
    const files = ["adapters.safetensors", "checkpoint.safetensors"];
    for (const name of files) Deno.writeTextFileSync(`${folder}/${name}`, "before");
    await assertRejects(() => work(`${folder}/adapters.safetensors`), errorClass, message);
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), files);
    for (const name of files) assertEquals(Deno.readTextFileSync(`${folder}/${name}`), "before");
  });
}

/** The same training written out: plain steps, with the batches of which tokens count alone. */
function trainPlainly(accumulate: number): { parameters: number[]; tokens: number; skipped: number[] } {
  mx.random.seed(4);
  const model = new Model();
  const optimizer = new mx.optimizers.AdamW({ learningRate: 0.05, weightDecay: 0.1 });
  const gradient = mx.nn.valueAndGrad(
    model,
    (tokens: mx.Tensor, lengths: mx.Tensor) => tuner.defaultLoss(model, tokens, lengths)[0],
  );
  const batches = tuner.iterateBatches(SET, 1, { maxSeqLength: MAX, loop: true, seed: 1 });
  let [gathered, tokens]: [mx.nn.ModuleTree[], number] = [[], 0];
  const skipped: number[] = [];
  for (let i = 1; i <= ARGS.iters; i++) {
    const batch = batches.next().value as readonly [mx.Tensor, mx.Tensor];
    const counted = COUNTED.get((batch[1].tolist() as number[][])[0][1])!;
    tokens += counted;
    if (counted === 0) skipped.push(i);
    else gathered.push(gradient(...batch)[1]);
    if (i % accumulate !== 0 || gathered.length === 0) continue;
    const [first, ...rest] = gathered;
    optimizer.update(
      model,
      mx.utils.treeMap((...all: mx.Tensor[]) => mx.divide(all.reduce((a, b) => mx.add(a, b)), all.length), first, rest),
    );
    gathered = [];
  }
  return { parameters: flat(model.parameters()), tokens, skipped };
}

for (const device of testDevices()) {
  for (const accumulate of [1, 3]) {
    Deno.test(`${device}: batches without a token that counts change nothing, ${accumulate} to a step`, async () => {
      mx.setDefaultDevice(device);
      const expected = trainPlainly(accumulate);
      mx.random.seed(4);
      const model = new Model();
      const skipped: number[] = [];
      let [before, changed]: [number[], number[]] = [flat(model.parameters()), []];
      const found = await tuner.train(model, new mx.optimizers.AdamW({ learningRate: 0.05, weightDecay: 0.1 }), SET, {
        valDataset: MASKED.slice(0, 1), // of one batch, so that it draws no order
        args: { ...ARGS, gradAccumulationSteps: accumulate, adapterFile: null },
        callback: {
          onSkip: (i) => void skipped.push(i),
          onStep: (i) => {
            const now = flat(model.parameters());
            if (now.some((x, at) => x !== before[at])) changed.push(i);
            before = now;
          },
        },
      });
      assertEquals(skipped, expected.skipped);
      assertEquals(found.skipped, 4); // two of the four examples, in two rounds
      assertEquals(found.trainedTokens, 14);
      assertEquals(found.trainedTokens, expected.tokens);
      assert(found.train.every(([, loss]) => Number.isFinite(loss)));
      assertEquals(found.train.map(([i]) => i).filter((i) => skipped.includes(i)), []);
      assertEquals(found.valid, []); // no token of it counts
      if (accumulate === 1) assertEquals(changed.concat(skipped).sort(), [1, 2, 3, 4, 5, 6, 7, 8]);
      const parameters = flat(model.parameters());
      // A dozen steps of float32, compiled and not.
      parameters.forEach((x, at) => assert(Math.abs(x - expected.parameters[at]) < 1e-5, `${x} at ${at}`));
    });
  }

  Deno.test(`${device}: a set without a token that counts is refused, and nothing is saved`, async () => {
    mx.setDefaultDevice(device);
    const model = new Model();
    const sgd = new mx.optimizers.SGD({ learningRate: 0.1 });
    const message = "found no token that the loss counts: every prompt reaches the 16 tokens of maxSeqLength";
    await refused(
      (adapterFile) => tuner.train(model, sgd, MASKED, { args: { ...ARGS, adapterFile } }),
      mx.ValueError,
      message,
    );
    const options = { maxSeqLength: MAX };
    await assertRejects(() => tuner.evaluate(model, MASKED, 1, options), mx.ValueError, message);
    const [mixed, alone] = [
      await tuner.evaluate(model, SET, 1, options),
      await tuner.evaluate(model, SET.slice(0, 2), 1, options),
    ];
    assert(Math.abs(mixed - alone) < 1e-6);
  });

  Deno.test(`${device}: a training that diverges is refused, and nothing is saved`, async () => {
    mx.setDefaultDevice(device);
    const start = (learningRate: number, iters: number, more: mx.lm.tuner.TrainOptions = {}) => (adapterFile: string) =>
      tuner.train(new Model(), new mx.optimizers.SGD({ learningRate }), SET.slice(0, 2), {
        ...more,
        args: { ...ARGS, stepsPerEval: 100, iters, adapterFile },
      });
    await refused(start(1e38, 3), mx.lm.LlmError, "The training loss is ");
    // The loss of the only iteration is finite, what it makes of the parameters is not.
    await refused(start(1e39, 1), mx.lm.LlmError, 'The parameter "');
    const infinite: mx.lm.tuner.Loss = (model, ...batch) => {
      const [loss, count] = tuner.defaultLoss(model, ...batch);
      return [mx.add(loss, Infinity), count];
    };
    await refused(start(0.1, 3, { loss: infinite }), mx.lm.LlmError, "The training loss is Infinity at iteration 1");
  });
}
