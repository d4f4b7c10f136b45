/**
 * Embeddings beside an engine's requests: the vectors are those of `embed`, streams go on meanwhile, and calls count as requests.
 */

import { assert, assertEquals } from "@std/assert";
import { setImmediate } from "node:timers/promises";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { errorOf, type Loaded, take, tinyPage } from "../../support/models/engine_requests.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const STEP = 64;
/** Of several times the tokens of a step; the others go together. */
const LONG = "the sea was calm and the fox went on ".repeat(40);
const TEXTS = ["a cat", LONG, "a kitten on a mat", "fox"];

for (const device of testDevices()) {
  const sizesOf = (): mx.lm.EngineOptions => ({ kvBytes: 8 * tinyPage(device), prefillStepSize: STEP });
  let shared: Promise<Loaded> | undefined;
  const open = async (options: mx.lm.EngineOptions = {}): Promise<{ loaded: Loaded; engine: mx.lm.Engine }> => {
    const loaded = await (shared ??= mx.lm.load(TINY_DIR, { device }));
    return { loaded, engine: new mx.lm.Engine(loaded.model, loaded.tokenizer, { ...sizesOf(), ...options }) };
  };
  const busy = { prompt: "Once", maxTokens: 400, logitBias: { 4089: -100, 4091: -100 } }; // without its EOS tokens

  Deno.test(`an engine's vectors are those of embed(), and nothing stays, on ${device}`, async () => {
    await withExactCpu(async () => {
      const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
      using _ = model;
      await using engine = new mx.lm.Engine(model, tokenizer, sizesOf());
      using expected = await mx.lm.embed(model, tokenizer, TEXTS);
      const calls = [TEXTS, [LONG], []].map((texts) => engine.embed(texts));
      assertEquals([engine.metrics.running, engine.metrics.waiting], [0, 3]);
      const [found, one, none] = await Promise.all(calls);
      const [rows, whole] = [found.tolist(), expected.tolist()];
      const limit = hasMatrices(device) ? 1e-6 : 1e-10;
      rows.forEach((row, i) => assert(nmse(row, whole[i]) < limit, `text ${i}: ${nmse(row, whole[i])}`));
      assert(nmse(one.tolist()[0], whole[1]) < limit);
      assertEquals([none.shape, engine.metrics.waiting, engine.metrics.requests], [[0, 0], 0, 0]); // no answers
      mx.dispose([found, one, none]);
      const settled = async (): Promise<number> => {
        mx.dispose(await engine.embed(["a"])); // what an evaluation used is free at the next one
        return mx.getActiveMemory();
      };
      const before = await settled();
      mx.dispose(await engine.embed([LONG]));
      const control = new AbortController();
      const aborted = errorOf(() => engine.embed([LONG], { signal: control.signal }));
      await setImmediate(); // it has begun
      control.abort(new Error("gone"));
      assertEquals(await aborted, "Error: gone");
      assertEquals(await settled(), before);
    });
  });

  Deno.test(`a stream goes on while a long text is embedded on ${device}`, async () => {
    const { loaded: { tokenizer }, engine } = await open();
    await using _ = engine;
    assert(tokenizer.encode(LONG).length > 4 * STEP);
    let tokens = 0;
    const control = new AbortController();
    const stream = take(engine.add({ ...busy, signal: control.signal }), () => void tokens++);
    while (tokens < 2) await setImmediate();
    const begin = tokens;
    mx.dispose(await engine.embed([LONG]));
    // Of 8 layers at least every other one is a turn of its own; the host may be one step ahead.
    assert(tokens - begin >= 3, `${tokens - begin} tokens came meanwhile`);
    control.abort();
    await stream;
  });

  Deno.test(`embeddings count as requests that wait, end by their signal and with the engine, on ${device}`, async () => {
    const { engine } = await open({ maxSequences: 1, maxQueue: 1 });
    const control = new AbortController();
    const first = engine.embed([LONG]);
    const second = errorOf(() => engine.embed([LONG], { signal: control.signal }));
    const full = "busy: 1 requests wait already: try again later";
    assertEquals(await errorOf(() => engine.embed(["a"])), full);
    assertEquals(await errorOf(() => engine.add(busy)), full);
    control.abort(new Error("gone"));
    assertEquals(await second, "Error: gone");
    assertEquals(engine.metrics.waiting, 1);
    const third = errorOf(() => engine.embed(["a"]));
    mx.dispose(await first);
    assertEquals(await third, "");
    assertEquals(await errorOf(() => engine.embed([""])), "context: Text 0 is empty");
    const last = errorOf(() => engine.embed([LONG]));
    await engine[Symbol.asyncDispose]();
    assertEquals(await last, "option: The engine was disposed: make a new one");
    assertEquals(await errorOf(() => engine.embed(["a"])), "option: The engine was disposed: make a new one");
  });
}
