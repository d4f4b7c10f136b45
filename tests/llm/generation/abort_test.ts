/**
 * An aborted prompt ends at once: it submits nothing more, the device is idle soon, and its memory comes back. The next
 * prompt is answered as if it had been the first.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const sleep = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The same of several prompts together, and of one beside others. */
async function assertBatches(
  model: mx.lm.LanguageModel,
  tokenizer: mx.lm.Tokenizer,
  long: readonly number[],
  expected: string,
  fast: boolean,
): Promise<void> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort("enough"), 20);
  const { signal } = controller;
  const aborted = mx.lm.batchGenerate(model, tokenizer, [long, long], { maxTokens: 3, signal }).catch((e) => e);
  const beside = mx.lm.generate(model, tokenizer, long, { maxTokens: 3, signal: new AbortController().signal });
  const outcome = await aborted;
  clearTimeout(timer);
  if (!fast || outcome === "enough") assertEquals(outcome, "enough");
  else for (const text of outcome.texts) assert(expected.startsWith(text), text);
  assertEquals(await beside, expected);
}

for (const device of DEVICES) {
  /** A prompt that takes a while, also where parts of it do. */
  const long = Array.from({ length: device === "wasm" ? 880 : 150 }, (_, i) => GOLDEN[0].ids[i % GOLDEN[0].ids.length]);
  /** Aborts: some before anything is submitted, some while the prompt is read. */
  const delays = [0, 5, 5, 5, 20, 50, 5, 100];

  Deno.test(`aborted prompts leave nothing behind on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const options = { maxTokens: 3 };
    const expected = await mx.lm.generate(model, tokenizer, long, options);
    const whole = performance.now();
    assertEquals(
      await mx.lm.generate(model, tokenizer, long, { ...options, signal: new AbortController().signal }),
      expected,
    );
    const usual = performance.now() - whole;

    const before = mx.getActiveMemory();
    mx.resetPeakMemory();
    await mx.lm.generate(model, tokenizer, long, options);
    const each = mx.getPeakMemory() - before;
    mx.resetPeakMemory();
    using cache = model.makeCache();
    const fast = usual < 200; // then an abort may come too late, and the answer is whole
    for (const [i, delay] of delays.entries()) {
      const controller = new AbortController();
      const timer = setTimeout(() => controller.abort(i), delay);
      const signal = controller.signal;
      const own = i % 2 === 0 ? {} : { cache, cachePrompt: true };
      const outcome = await mx.lm.generate(model, tokenizer, long, { ...options, ...own, signal }).catch((r) => r);
      clearTimeout(timer);
      if (fast && typeof outcome === "string") assert(expected.startsWith(outcome), outcome);
      else assertEquals(outcome, i);
    }
    assert(mx.getPeakMemory() - before < 4 * each, "prompts that were aborted pile up");

    const start = performance.now();
    assertEquals(await mx.lm.generate(model, tokenizer, long, { ...options, cache, cachePrompt: true }), expected);
    const next = performance.now() - start;
    assert(next < 3 * usual + 5000, `${next} ms after aborts, ${usual} ms otherwise`);

    cache.dispose();
    for (let i = 0; i < 200 && mx.getActiveMemory() > before; i++) await sleep(10);
    assertEquals(mx.getActiveMemory(), before);
    await assertBatches(model, tokenizer, long, expected, fast);
    await model.traces.idle();
    model[Symbol.dispose]();
  });
}
