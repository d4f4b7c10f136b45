/**
 * Checkpoints. A training that resumes from one ends bit-equal to an uninterrupted one on the same backend. One backend
 * resumes where the other ended. A save that is killed or fails leaves the previous file whole.
 */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { anyDevice, testDevices } from "../support/devices/devices.ts";

mx.devices(); // opens the Vulkan library outside of any test

const { tuner } = mx.lm;

/** A language model of two embeddings and dropout, which draws from the random state. */
class Model extends mx.nn.Module {
  table = new mx.nn.Embedding(24, 16);
  dropout = new mx.nn.Dropout(0.2);
  head = new mx.nn.Linear(16, 24);

  override forward(x: mx.Tensor): mx.Tensor {
    return this.head.forward(this.dropout.forward(mx.tanh(this.table.forward(x))));
  }
}

const SET = Array.from({ length: 7 }, (_, i) => ({
  tokens: Array.from({ length: 6 + 9 * i }, (_, j) => (5 * i + 3 * j) % 24),
  offset: i % 3,
}));

interface Run {
  readonly iters: number;
  readonly folder: string;
  readonly resume?: string;
  readonly accumulate?: number;
  readonly optimizer?: mx.optimizers.Optimizer;
  readonly signal?: AbortSignal;
  readonly callback?: mx.lm.tuner.TrainingCallback;
}

function trainIn({ iters, folder, resume, accumulate = 1, optimizer, signal, callback }: Run) {
  mx.random.seed(resume === undefined ? 4 : 99);
  const model = new Model();
  const schedule = mx.optimizers.cosineDecay(0.05, 20);
  const args = {
    batchSize: 2,
    iters,
    stepsPerReport: 4,
    stepsPerEval: 3,
    stepsPerSave: 5,
    gradAccumulationSteps: accumulate,
    adapterFile: `${folder}/adapters.safetensors`,
    seed: 3,
  };
  return tuner.train(model, optimizer ?? new mx.optimizers.AdamW({ learningRate: schedule }), SET, {
    valDataset: SET.slice(0, 3),
    args,
    ...(resume !== undefined && { resume }),
    ...(signal && { signal }),
    ...(callback && { callback }),
  });
}

async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const folderIn = (folder: string, name: string): string => {
  Deno.mkdirSync(`${folder}/${name}`);
  return `${folder}/${name}`;
};

for (const device of testDevices()) {
  for (const accumulate of [1, 3]) {
    Deno.test(`${device}: a resumed training is bit-equal, ${accumulate} batches to a step`, () =>
      inFolder(async (folder) => {
        mx.setDefaultDevice(device);
        const [whole, parts] = [folderIn(folder, "whole"), folderIn(folder, "parts")];
        const expected = await trainIn({ iters: 14, folder: whole, accumulate });
        assertEquals(Array.from(Deno.readDirSync(whole), ({ name }) => name).sort(), [
          "0000005_adapters.safetensors",
          "0000010_adapters.safetensors",
          "adapters.safetensors",
          "checkpoint.safetensors",
        ]);
        // Ends in the midst of a round, of a report and of an accumulation.
        const ended = new AbortController();
        const callback = { onStep: (i: number) => i === 7 && ended.abort() };
        await trainIn({ iters: 14, folder: parts, accumulate, signal: ended.signal, callback });
        const resume = `${parts}/checkpoint.safetensors`;
        const found = await trainIn({ iters: 14, folder: parts, resume, accumulate });
        assertEquals(found, expected);
        for (const name of ["adapters", "checkpoint"]) {
          const [a, b] = [whole, parts].map((at) => mx.loadSafetensors(`${at}/${name}.safetensors`));
          assertEquals(Object.keys(a).sort(), Object.keys(b).sort());
          for (const key of Object.keys(a)) assert(mx.arrayEqual(a[key], b[key]).item(), `${name}: ${key} differs`);
        }
      }));
  }

  const other = testDevices().find((name) => name !== device);
  if (other === undefined) continue;
  Deno.test(`a checkpoint of ${device} goes on with ${other}`, () =>
    inFolder(async (folder) => {
      const [whole, parts] = [folderIn(folder, "whole"), folderIn(folder, "parts")];
      mx.setDefaultDevice(device);
      const expected = await trainIn({ iters: 12, folder: whole });
      await trainIn({ iters: 5, folder: parts });
      mx.setDefaultDevice(other);
      const found = await trainIn({ iters: 12, folder: parts, resume: `${parts}/checkpoint.safetensors` });
      const last = (run: mx.lm.tuner.Trained): number => run.train.at(-1)![1];
      assert(Math.abs(last(found) - last(expected)) < 1e-4 * last(expected), `${last(found)}, not ${last(expected)}`);
      assertEquals(found.trainedTokens, expected.trainedTokens);
      const [a, b] = [whole, parts].map((at) => mx.loadSafetensors(`${at}/adapters.safetensors`));
      for (const key of Object.keys(a)) assert(mx.allclose(a[key], b[key], 1e-3, 1e-4).item(), `${key} differs`);
    }));
}

Deno.test("a checkpoint of another training is refused by what differs", () =>
  inFolder(async (folder) => {
    mx.setDefaultDevice(anyDevice());
    await trainIn({ iters: 2, folder });
    const resume = `${folder}/checkpoint.safetensors`;
    const refused = (run: Partial<Run>, message: string) =>
      assertRejects(() => trainIn({ iters: 4, folder, resume, ...run }), mx.lm.LlmError, message);
    await refused({ accumulate: 2 }, 'was made with gradAccumulationSteps "1", and this training has "2"');
    await refused({ optimizer: new mx.optimizers.SGD(0.1) }, 'was made with optimizer "AdamW"');
    await refused({ resume: `${folder}/adapters.safetensors` }, "is no checkpoint of a training");
    await refused({ resume: `${folder}/none.safetensors` }, "does not exist");
  }));

/** A model of two layers that can be adapted. */
class Layers extends mx.nn.Module {
  table = new mx.nn.Embedding(24, 24);
  layers = [new Model()];

  override forward(x: mx.Tensor): mx.Tensor {
    return mx.add(this.layers[0].forward(x), this.table.forward(x));
  }
}

Deno.test("a checkpoint with fewer adapters is refused, and goes on where its layers are given as keys", () =>
  inFolder(async (folder) => {
    mx.setDefaultDevice(anyDevice());
    const run = (keys: string[] | undefined, iters: number, resume?: string): Promise<mx.lm.tuner.Trained> => {
      const model = new Layers();
      const loraParameters = { rank: 2, scale: 1, dropout: 0, ...(keys && { keys }) };
      tuner.prepareModel(model, { fineTuneType: "lora", numLayers: 1, loraParameters });
      return tuner.train(model, new mx.optimizers.SGD(0.1), SET, {
        args: { batchSize: 2, iters, stepsPerReport: 1, adapterFile: `${folder}/adapters.safetensors` },
        ...(resume !== undefined && { resume }),
      });
    };
    await run(["head"], 1);
    const resume = `${folder}/checkpoint.safetensors`;
    const message = 'table.lora_a", which is trained: give the layers that it adapted as keys';
    await assertRejects(() => run(undefined, 2, resume), mx.lm.LlmError, message);
    assertEquals((await run(["head"], 2, resume)).train.map(([at]) => at), [1, 2]);
  }));

/** Saves two states in turn, over and over; tells when the first one is there. */
const SAVER = `
import * as mx from ${JSON.stringify(new URL("../../mod.ts", import.meta.url).href)};
mx.setDefaultDevice("cpu");
const arrays = (value) => ({ a: mx.full([2 ** 20], value), b: mx.full([2 ** 20], value) });
const states = [arrays(1), arrays(2)];
mx.eval(states);
for (let i = 0;; i++) {
  mx.saveSafetensors(Deno.args[0], states[i % 2], { value: String(1 + i % 2) });
  if (i === 0) console.log("saved");
}`;

Deno.test("a save that is killed leaves a whole file", () =>
  inFolder(async (folder) => {
    mx.setDefaultDevice(anyDevice());
    const path = `${folder}/checkpoint.safetensors`, program = `${folder}/saver.ts`;
    await Deno.writeTextFile(program, SAVER);
    let left = 0;
    for (let round = 0; round < 5; round++) {
      const command = new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--no-lock", "--no-check", program, path],
        stdout: "piped",
        stderr: "null",
      });
      const child = command.spawn();
      const output = child.stdout.getReader();
      await output.read(); // "saved"
      await new Promise((done) => setTimeout(done, 7 * round + 3));
      child.kill("SIGKILL");
      await child.status;
      await output.cancel();
      left += Array.from(Deno.readDirSync(folder)).filter(({ name }) => name.endsWith(".tmp")).length;
      const { a, b } = mx.loadSafetensors(path);
      const { value } = mx.safetensorsMetadata(path);
      for (const x of [a, b]) assert(mx.all(mx.equal(x, Number(value))).item(), "parts of two saves in one file");
    }
    assert(left > 0, "no save was killed in its midst: the test shows nothing");
  }));

Deno.test("a write that fails leaves the old file whole", () =>
  inFolder(async (folder) => {
    mx.setDefaultDevice(anyDevice());
    const path = `${folder}/checkpoint.safetensors`;
    mx.saveSafetensors(path, { a: mx.full([1000], 1) });
    const before = await Deno.readFile(path);
    const write = Deno.FsFile.prototype.writeSync;
    let calls = 0;
    Deno.FsFile.prototype.writeSync = function (bytes) {
      if (++calls === 3) throw new Error("no space left on device");
      return write.call(this, bytes);
    };
    try {
      assertThrows(
        () => mx.saveSafetensors(path, { a: mx.full([1000], 2), b: mx.full([1000], 2) }),
        mx.ArrayError,
        "no space left",
      );
    } finally {
      Deno.FsFile.prototype.writeSync = write;
    }
    assertEquals(calls, 3);
    assertEquals(await Deno.readFile(path), before);
    assertEquals(Array.from(Deno.readDirSync(folder), ({ name }) => name), ["checkpoint.safetensors"]);
  }));
