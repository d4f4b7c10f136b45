/** Calls of onPrompt while one forward pass of a long prompt runs on the CPU. */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { TINY_DIR } from "../../support/models/models.ts";

/** Runs `work` with timers that tick at every turn of the event loop. */
async function withQuickTimers<T>(work: () => Promise<T>): Promise<T> {
  const { setInterval } = globalThis;
  globalThis.setInterval = ((run: () => void) => setInterval(run, 1)) as typeof globalThis.setInterval;
  try {
    return await work();
  } finally {
    globalThis.setInterval = setInterval;
  }
}

Deno.test("onPrompt hears how much of a pass is read on the CPU, and the tokens are the same", async () => {
  const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: "wasm" });
  using _ = model;
  const prompt = Array.from({ length: 500 }, (_, i) => 300 + i % 200);
  const answer = (onPrompt?: (done: number, total: number) => void) =>
    mx.lm.generate(model, tokenizer, prompt, { maxTokens: 5, ...(onPrompt && { onPrompt }) });
  const seen: number[] = [];
  const text = await withQuickTimers(() =>
    answer((done, total) => {
      assertEquals(total, prompt.length);
      seen.push(done);
    })
  );
  assertEquals(seen.at(-1), prompt.length);
  assert(seen.length > 3 && seen[0] < prompt.length / 2, `${seen}`);
  assert(seen.every((done, i) => done >= (seen[i - 1] ?? 0)), `${seen}`);
  assertEquals(text, await answer());

  const failing = withQuickTimers(() =>
    answer(() => {
      throw new Error("no room for a bar");
    })
  );
  await assertRejects(() => failing, Error, "no room for a bar");
  assertEquals(await answer(), text);
});
