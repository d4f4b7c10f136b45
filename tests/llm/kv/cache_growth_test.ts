/**
 * Caches that grow while tokens are decoded. Nothing is lost at the seam, for one sequence and for several, whether the
 * next step was prepared ahead or not. No memory stays in use.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const SHAPE = { hidden: 128, intermediate: 64, layers: 1, heads: 2, kvHeads: 1, headDim: 32, tied: true, vocab: 4096 };
const PROMPT = Array.from({ length: 245 }, (_, i) => (i * 71) % SHAPE.vocab);
/** Enough to pass the room that a prompt makes, 256 tokens and what is left of a step of 256. */
const COUNT = 280;

/** Tokens after the prompt, with room for all of them from the start or not. */
async function decode(model: mx.lm.LanguageModel, roomy: boolean, graph: string | undefined): Promise<number[]> {
  using cache = model.makeCache();
  if (roomy) cache.reserve(0, 1024);
  const sampler = Object.assign(mx.lm.makeSampler({ temp: 5, seed: 3 }), { graph });
  const settings = { maxTokens: COUNT, sampler, processors: [], contextSize: 20, cache, prefillStepSize: 2048 };
  const tokens: number[] = [];
  for await (const token of mx.lm.generateStep(PROMPT, model, settings)) tokens.push(token);
  assertEquals(cache.capacity, 1024);
  return tokens;
}

for (const device of DEVICES) {
  for (const regions of device === "wasm" ? ["off"] as const : ["off", "on"] as const) {
    Deno.test(`a cache grows between steps without a trace, regions ${regions}, on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
      using _options = withOptions({ regions });
      const backend = mx.withDevice(device, getBackend);
      const alive = backend.liveObjects();
      const { model } = await mx.lm.load(`${folder}/model`, { device });
      const expected = await decode(model, true, "own");
      assertEquals(expected.length, COUNT);
      assert(new Set(expected).size > 20, "the tokens are too much alike to tell");
      const { size } = model.traces;
      assertEquals(await decode(model, false, "own"), expected);
      const { size: grown } = model.traces; // the step at the smaller capacity, and the prompt where it is kept
      assertEquals(grown, size + (decodingModel(model).device.tiled ? 2 : 1));
      // Nothing is kept, and so nothing prepared. Such a sampler's tokens are checked op by op, which may round otherwise.
      const own = await decode(model, true, undefined);
      assertEquals(own.slice(0, 20), expected.slice(0, 20));
      assertEquals(await decode(model, false, undefined), own);
      assertEquals(model.traces.size, grown);
      await model.traces.idle();
      model[Symbol.dispose]();
      assertEquals(backend.liveObjects(), alive);
      await Deno.remove(folder, { recursive: true });
    });
  }

  Deno.test(`a batch grows past the room of its longest prompt on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
    const { model } = await mx.lm.load(`${folder}/model`, { device });
    const tokenizer = {
      decoder: () => ({ push: () => "", finish: () => "" }),
      eosTokenIds: new Set(),
      chatTemplate: "",
      idOf: () => undefined,
    };
    const run = async (other: number[]): Promise<readonly number[]> => {
      const settings = { maxTokens: COUNT, temp: 5, seed: [3, 8] };
      const prompts = [PROMPT, other];
      const { tokens } = await mx.lm.batchGenerate(model, tokenizer as unknown as mx.lm.Tokenizer, prompts, settings);
      assertEquals(tokens.map((list) => list.length), [COUNT, COUNT]);
      return tokens[0];
    };
    const long = [...PROMPT, ...PROMPT, ...PROMPT.slice(5)]; // with it there is room for all from the start
    assertEquals(await run(PROMPT.slice(0, 30)), await run(long));
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });
}

Deno.test("a cache tells the buffers of several growths, until there is room for what is asked", async () => {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
  const { model } = await mx.lm.load(`${folder}/model`, { device: "wasm" });
  using cache = model.makeCache();
  assertEquals(cache.outgrown(), undefined, "an empty cache has no shapes yet");
  const settings = { maxTokens: 1, sampler: mx.lm.makeSampler({ temp: 0 }), processors: [], contextSize: 20, cache };
  for await (const _ of mx.lm.generateStep(PROMPT, model, { ...settings, prefillStepSize: 2048 }));
  const sizeOf = ({ keys: [first] }: typeof cache.buffers): number => {
    const arrays = first instanceof mx.Tensor ? first : first.arrays;
    return [arrays].flat().reduce((sum, { size }) => sum + size, 0);
  };
  const positions = (times: number, most?: number): number | undefined => {
    const grown = cache.outgrown(times, most);
    const found = grown && cache.capacity * sizeOf(grown) / sizeOf(cache.buffers);
    mx.dispose(grown ?? []);
    return found;
  };
  const { capacity } = cache;
  assertEquals([1, 2, 3].map((times) => positions(times)), [2 * capacity, 4 * capacity, 8 * capacity]);
  assertEquals([1, 2, 3].map((times) => positions(times, 2 * capacity)), [2 * capacity, undefined, undefined]);
  assertEquals(positions(2, 2 * capacity + 1), 4 * capacity);
  assertEquals(positions(20), undefined, "the context ends before");
  model[Symbol.dispose]();
  await Deno.remove(folder, { recursive: true });
});
