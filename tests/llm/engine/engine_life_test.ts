/**
 * The life of an engine's requests: they are added, aborted and left at any time, and the engine is disposed at any time. Nothing stays afterwards: no memory, no rejection without a handler, nothing that keeps the program alive. Others go on as if nothing had been.
 */

import { assert, assertEquals } from "@std/assert";
import { setImmediate, setTimeout } from "node:timers/promises";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { assertAlike, errorOf, type Loaded, take, takeAlone, tinyPage } from "../../support/models/engine_requests.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { idleAfter } from "../../support/models/idle_after.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** A pool that is made fast. */
const small = (device: string): mx.lm.EngineOptions => ({ kvBytes: 8 * tinyPage(device) });
const DISPOSED = "option: The engine was disposed: make a new one";
const LONG = Array.from({ length: 300 }, (_, i) => GOLDEN[1].ids[i % GOLDEN[1].ids.length]);
/** A grammar that takes a while to compile. */
const GRAMMAR = { type: "regex", regex: "([a-z]{1,20} ){1,20}end" } as const;

/** Asserts that a request gets what it gets alone. */
async function assertServes(engine: mx.lm.Engine, loaded: Loaded): Promise<void> {
  const request = { prompt: GOLDEN[0].ids, maxTokens: 5 };
  const served = await take(engine.add(request));
  assertEquals(served.map(({ token }) => token), GOLDEN[0].greedy.slice(0, 5));
  assertAlike(served, await takeAlone(loaded, request), "a request afterwards");
}

/** Resolves when no request runs or waits. */
async function untilIdle(engine: mx.lm.Engine): Promise<void> {
  while (engine.metrics.running + engine.metrics.waiting > 0) await setImmediate();
}

/** Bytes on the device beside the traces that a model keeps. */
async function settle(model: mx.lm.LanguageModel): Promise<number> {
  await model.traces.idle();
  model.traces[Symbol.dispose]();
  return mx.getActiveMemory();
}

for (const device of DEVICES) {
  const shared: { loaded?: Loaded } = {};
  const test = (name: string, work: () => Promise<void>): void =>
    Deno.test(name, idleAfter(() => shared.loaded?.model, work));
  const load = async (): Promise<Loaded> => shared.loaded ??= await mx.lm.load(TINY_DIR, { device });

  test(`requests are aborted and left at any time on ${device}`, async () => {
    const loaded = await load();
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
      ...small(device),
      maxSequences: 2,
      prefillStepSize: 32,
    });
    const beside = take(engine.add({ prompt: GOLDEN[2].ids, maxTokens: 15 }));
    // Before it is added.
    const early = AbortSignal.abort("early");
    assertEquals(await errorOf(() => engine.add({ prompt: "Hi", signal: early })).catch(String), "early");
    // While it waits, before anybody looks, and twice.
    const waiting = new AbortController();
    const long = take(engine.add({ prompt: LONG, maxTokens: 2 }));
    const responses = engine.add({ prompt: LONG, maxTokens: 2, signal: waiting.signal });
    waiting.abort("waiting");
    waiting.abort("again");
    assertEquals(await take(responses).catch((reason) => reason), "waiting");
    // While its grammar opens.
    const opening = new AbortController();
    const opened = take(engine.add({ prompt: "Hi", responseFormat: GRAMMAR, signal: opening.signal }));
    opening.abort("opening");
    assertEquals(await opened.catch((reason) => reason), "opening");
    // Left before its first token, by a loop that was never begun; and never taken at all.
    await engine.add({ prompt: LONG, maxTokens: 2 }).return();
    const unused = engine.add({ prompt: "The sea", maxTokens: 3 });
    // While its prompt is read.
    const reading = new AbortController();
    const read = take(engine.add({ prompt: [...LONG].reverse(), priority: 100, signal: reading.signal }));
    await setTimeout(5);
    reading.abort("reading");
    const outcome = await read.catch((reason) => reason);
    assert(outcome === "reading" || outcome.at(-1).finishReason !== null, String(outcome));
    await Promise.all([beside, long]);
    // Between two tokens: the next one is the last.
    const between = new AbortController();
    const counts: (string | null)[] = [];
    for await (const { finishReason } of engine.add({ prompt: "Nina", maxTokens: 60, signal: between.signal })) {
      counts.push(finishReason);
      if (counts.length === 2) between.abort("between");
    }
    assertEquals(counts.at(-1), "abort");
    assert(counts.length < 60, "an abort comes late");
    for await (const _ of engine.add({ prompt: "Nina", maxTokens: 1000 })) break;
    await untilIdle(engine);
    assertEquals(engine.metrics.requests, 9);
    assertAlike(await beside, await takeAlone(loaded, { prompt: GOLDEN[2].ids, maxTokens: 15 }), "the one beside");
    assertEquals((await take(unused)).length, 3);
    await assertServes(engine, loaded);
  });

  test(`a request that follows another at once is served on ${device}`, async () => {
    const { model, tokenizer } = await load();
    await using engine = new mx.lm.Engine(model, tokenizer, small(device));
    for (let i = 0; i < 8; i++) {
      assertEquals((await take(engine.add({ prompt: "Hi", maxTokens: 1 + i % 2 }))).length, 1 + i % 2);
    }
    // By a reaction to the last response, before the engine's own code goes on.
    let count = 0;
    const again = async (): Promise<void> => {
      for await (const { finishReason } of engine.add({ prompt: "Hi", maxTokens: 1 })) {
        if (finishReason !== null && ++count < 8) await again();
      }
    };
    await again();
    assertEquals(count, 8);
    await engine.drain();
  });

  test(`an engine is disposed while requests run, and takes no others, on ${device}`, async () => {
    const { model, tokenizer } = await load();
    const before = await settle(model);
    const engine = new mx.lm.Engine(model, tokenizer, { ...small(device), maxSequences: 2 });
    const first = engine.add({ prompt: "Once upon a time", maxTokens: 400 });
    await first.next();
    await first.next();
    const ends = [
      { prompt: LONG, maxTokens: 5 },
      { prompt: "It waits" },
      { prompt: "Its grammar opens", responseFormat: GRAMMAR },
    ].map((request) => errorOf(() => take(engine.add(request))));
    // Errors that no caller takes: of a grammar that allows no text, and of the end.
    engine.add({ prompt: "Nobody looks", responseFormat: { type: "regex", regex: "[^\\s\\S]x" } });
    const second = engine.add({ prompt: "Nobody looks" });
    await Promise.all([engine[Symbol.asyncDispose](), engine[Symbol.asyncDispose]()]);
    assertEquals(await Promise.all(ends), ends.map(() => DISPOSED));
    assertEquals(await errorOf(() => take(first)), DISPOSED);
    assertEquals(await errorOf(() => engine.add({ prompt: "Hi" })), DISPOSED);
    await engine[Symbol.asyncDispose]();
    await engine.drain();
    assertEquals(engine.metrics.waiting + engine.metrics.running, 0);
    assertEquals(await errorOf(() => take(second)), DISPOSED);
    assertEquals(await settle(model), before);
  });

  test(`engines and streams share a model on ${device}`, async () => {
    const loaded = await load();
    const { model, tokenizer } = loaded;
    await using one = new mx.lm.Engine(model, tokenizer, small(device));
    await using other = new mx.lm.Engine(model, tokenizer, { ...small(device), maxSequences: 1 });
    const request = (i: number): mx.lm.EngineRequest => ({
      prompt: GOLDEN[i].ids,
      maxTokens: 12,
      temp: i % 2,
      seed: i,
    });
    const all = [0, 1, 2].map(request);
    const together = await Promise.all([
      ...all.map((one_) => take(one.add(one_))),
      ...all.map((one_) => take(other.add(one_))),
      ...all.map((one_) => takeAlone(loaded, one_)),
    ]);
    for (const [i, served] of together.entries()) {
      assertAlike(served, await takeAlone(loaded, all[i % 3]), `number ${i}`);
    }
  });

  test(`memory stays flat over many requests on ${device}`, async () => {
    const { model, tokenizer } = await load();
    const before = await settle(model);
    {
      await using engine = new mx.lm.Engine(model, tokenizer, { ...small(device), maxSequences: 4 });
      const round = async (from: number): Promise<number> => {
        await Promise.all(Array.from({ length: device === "wasm" ? 100 : 12 }, (_, i) => {
          const request = { prompt: [1 + (from + i) % 4000, 5, 6], maxTokens: 1 + i % 2, temp: i % 3, seed: i };
          return take(engine.add(request));
        }));
        assert(engine.metrics.kvBytesUsed <= engine.metrics.kvBytes);
        return mx.getActiveMemory();
      };
      await round(0);
      const first = await round(100);
      const last = await round(200);
      assert(last <= first + 2 ** 20, `${last - first} bytes more after the last round`);
    }
    assertEquals(await settle(model), before);
  });

  test(`requests of one token, which no decode step follows, leave nothing behind on ${device}`, async () => {
    const { model, tokenizer } = await load();
    await using engine = new mx.lm.Engine(model, tokenizer, { ...small(device), prefillStepSize: 32 });
    const serve = async (from: number): Promise<number> => {
      for (let i = from; i < from + 5; i++) await take(engine.add({ prompt: [1 + i, 5, 6], maxTokens: 1 }));
      return mx.getActiveMemory();
    };
    const first = await serve(0);
    assertEquals(await serve(10), first);
  });

  test(`an engine whose model was disposed says so on ${device}`, async () => {
    await shared.loaded?.model.traces.idle();
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const engine = new mx.lm.Engine(model, tokenizer, small(device));
    await take(engine.add({ prompt: "Hi", maxTokens: 1 }));
    await model.traces.idle();
    assertEquals(engine.failure, undefined);
    model[Symbol.dispose]();
    const error = await errorOf(() => take(engine.add({ prompt: "Hi", maxTokens: 1 })));
    assert(error.includes("disposed"), error);
    assert(!error.includes("\n"), error);
    const { failure } = engine;
    assert(failure instanceof Error && error.includes(failure.message));
    for (const work of [() => engine.add({ prompt: "Hi" }), () => engine.embed(["a"])]) {
      assertEquals(await errorOf(work), error);
    }
    await engine[Symbol.asyncDispose]();
    shared.loaded?.model[Symbol.dispose]();
  });
}
