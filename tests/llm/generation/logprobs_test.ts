/**
 * Log probabilities against float64, for made-up logits of many shapes and for a generation. The whole model computes
 * the generation's logits again for each token, with penalties that are counted here.
 */

import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { readLogprobs } from "../../../src/llm/sampling/logprobs_log.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withoutMatrices } from "../../support/devices/matrices.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";

mx.devices(); // opens the library outside of the tests, which count resources

/** Log probabilities of logits, and the indices of the `top` most probable tokens; of equals the lower index first. */
function oracle(logits: readonly number[], top: number): { logprobs: number[]; likely: number[] } {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const total = most + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - most), 0));
  const likely = logits.map((_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b).slice(0, top);
  return { logprobs: logits.map((x) => x - total), likely };
}

/** Numbers of about -8 to 8 with many ties, some of them impossible. */
function someLogits(size: number, seed: number): number[] {
  return Array.from({ length: size }, (_, i) => {
    const n = (Math.imul(i + 1, 2654435761) ^ Math.imul(seed + 1, 40503)) >>> 8 & 1023;
    return n % 97 === 5 ? -Infinity : (n - 512) / 64;
  });
}

interface Answer {
  readonly token: number;
  readonly logprobs?: mx.lm.Logprobs;
}

async function collect<T extends Answer>(stream: AsyncIterable<T>): Promise<T[]> {
  const responses: T[] = [];
  for await (const response of stream) responses.push(response);
  return responses;
}

const SETTINGS = {
  maxTokens: 6,
  logprobs: 3,
  logitBias: { 9: 1.25, 77: -Infinity },
  repetitionPenalty: 1.3,
  presencePenalty: 0.4,
  frequencyPenalty: 0.7,
  repetitionContextSize: 7,
} as const;

/** The logits after some tokens as the options of SETTINGS change them. */
function changed(logits: readonly number[], tokens: readonly number[]): number[] {
  const recent = tokens.slice(-SETTINGS.repetitionContextSize);
  return logits.map((x, id) => {
    const count = recent.filter((token) => token === id).length;
    const biased = x + ((SETTINGS.logitBias as Record<number, number>)[id] ?? 0);
    if (count === 0) return biased;
    const { repetitionPenalty: factor, presencePenalty, frequencyPenalty } = SETTINGS;
    return (biased < 0 ? biased * factor : biased / factor) - presencePenalty - count * frequencyPenalty;
  });
}

for (const device of testDevices()) {
  Deno.test(`mx.fast.logprobs() gives what float64 gives on ${device}`, () => {
    mx.setDefaultDevice(device);
    const shapes = [[5, 1, 3], [256, 2, 1], [257, 1, 20], [1031, 3, 7], [4099, 1, 20], [700, 2, 0], [40, 67, 2]];
    for (const [size, rows, top] of [...shapes, [30_011, 2, 7], [151_936, 1, 20]]) {
      const logits = Array.from({ length: rows }, (_, row) => someLogits(size, row));
      const tokens = logits.map((row, i) => row.findIndex((x, at) => at >= i % 5 && x > -Infinity));
      const found = mx.tidy(() =>
        mx.fast.logprobs(mx.array(logits), mx.array(tokens, mx.int32), top).tolist()
      ) as number[][];
      for (const [i, row] of found.entries()) {
        const { logprob, top: likely } = readLogprobs(Float32Array.from(row));
        const { logprobs, likely: expected } = oracle(logits[i], top);
        assertAlmostEquals(logprob, logprobs[tokens[i]], 1e-5);
        assertEquals(likely.map(({ token }) => token), expected, `${size} logits`);
        for (const { token, logprob } of likely) assertAlmostEquals(logprob, logprobs[token], 1e-5);
      }
    }
  });

  Deno.test(`streamGenerate() tells log probabilities behind bias and counted penalties on ${device}`, async () => {
    // Tokens are computed in steps here, in one pass there. Matrix units would round the rows of the pass to float16.
    // Logits are then off by a thousandth of their size, which is more than the limit. So both are computed without
    // them.
    const exact = withoutMatrices(device);
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: exact });
    mx.setDefaultDevice(exact);
    for (const [held, prompt] of [[[], [5, 9, 9]], [[11, 40, 9, 300, 9, 2, 8, 9], [41]]]) {
      using _options = withOptions({ regions: held.length > 0 ? "on" : "auto" }); // the logits come from fused layers too
      using cache = model.makeCache();
      if (held.length > 0) await collect(mx.lm.streamGenerate(model, tokenizer, held, { maxTokens: 1, cache }));
      const responses = await collect(mx.lm.streamGenerate(model, tokenizer, prompt, { ...SETTINGS, cache }));
      assertEquals(responses.length, SETTINGS.maxTokens);
      const tokens = [...held, ...prompt];
      for (const { token, logprobs } of responses) {
        const all = mx.tidy(() => {
          const logits = model.forward(mx.array([tokens], mx.int32));
          return logits.index(0, tokens.length - 1).astype(mx.float32).tolist();
        }) as number[];
        const expected = oracle(changed(all, tokens), SETTINGS.logprobs);
        const { logprob, top } = logprobs!;
        assertEquals([token, ...top.map((t) => t.token)], [expected.likely[0], ...expected.likely]);
        assertAlmostEquals(logprob, expected.logprobs[token], 2e-3);
        for (const t of top) assertAlmostEquals(t.logprob, expected.logprobs[t.token], 2e-3);
        tokens.push(token);
      }
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });
}

for (const device of testDevices()) {
  Deno.test(`log probabilities change no token, and sequences together get those that each gets alone on ${device}`, async () => {
    // As above: matrix units, which only several sequences take, would round what they get.
    const exact = withoutMatrices(device);
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: exact });
    mx.setDefaultDevice(exact);
    using _options = withOptions({ regions: "on" });
    const settings = { maxTokens: 5, temp: 1, seed: 3 };
    const prompt = "Once upon a time";
    for (const more of [{}, { topK: 2, repetitionPenalty: 1.1 }, { frequencyPenalty: 0.5 }]) {
      const how = { ...settings, ...more };
      const plain = await collect(mx.lm.streamGenerate(model, tokenizer, prompt, how));
      assert(plain.every((response) => !("logprobs" in response)));
      const alone = await collect(mx.lm.streamGenerate(model, tokenizer, prompt, { ...how, logprobs: 2 }));
      assertEquals(alone.map(({ token }) => token), plain.map(({ token }) => token));
      const together = await collect(
        mx.lm.streamBatchGenerate(model, tokenizer, [prompt, "The sea is"], { ...how, seed: [3, 4], logprobs: 2 }),
      );
      const first = together.filter(({ sequence }) => sequence === 0);
      assertEquals(first.map(({ token }) => token), alone.map(({ token }) => token));
      for (const [i, { logprobs }] of first.entries()) {
        assertEquals(logprobs!.top.map(({ token }) => token), alone[i].logprobs!.top.map(({ token }) => token));
        assertAlmostEquals(logprobs!.logprob, alone[i].logprobs!.logprob, 1e-3);
      }
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });
}

Deno.test("streamGenerate() refuses numbers of log probabilities that are out of range", async () => {
  const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: "wasm" });
  for (const logprobs of [-1, 1.5, 21, NaN]) {
    await assertRejects(
      () => collect(mx.lm.streamGenerate(model, tokenizer, [5, 9], { logprobs })),
      mx.lm.LlmError,
      `logprobs is ${logprobs}, expected an integer from 0 to 20`,
    );
  }
  model[Symbol.dispose]();
});
