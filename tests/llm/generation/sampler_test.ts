/**
 * Samplers against tokens that mlx-lm draws from the same logits with the same seed, on every device.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { KeySequence } from "../../../src/array/random/keys.ts";
import { testDevices } from "../../support/devices/devices.ts";

mx.devices(); // opens the library outside of the tests, which count resources

const { makeSampler, makeLogitsProcessors, LlmError } = mx.lm;

// deno-fmt-ignore
const LOGITS = [1.63, -2.04, 0.33, -0.45, -0.36, -0.17, -1.62, -0.19, -0.69, 2.66, 0.18, -0.28, -0.23, -0.53, -0.84, -0.31];

// deno-fmt-ignore
const DRAWS: readonly { readonly options: mx.lm.SamplerOptions; readonly tokens: readonly number[] }[] = [
  { options: { temp: 1 }, tokens: [0, 15, 4, 5, 9, 0, 9, 9, 0, 9, 9, 9, 13, 7, 9, 4, 9, 9, 9, 0] },
  { options: { temp: 0.7, topK: 5 }, tokens: [0, 10, 9, 9, 9, 0, 9, 9, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0] },
  { options: { temp: 1.5, topP: 0.8 }, tokens: [0, 10, 2, 2, 7, 0, 9, 7, 0, 5, 9, 9, 10, 5, 7, 2, 7, 7, 9, 0] },
  { options: { temp: 1, minP: 0.1 }, tokens: [0, 9, 9, 9, 9, 0, 9, 9, 0, 9, 9, 9, 9, 9, 9, 0, 9, 9, 9, 0] },
  { options: { temp: 0.6, topP: 0.95, topK: 8 }, tokens: [0, 10, 9, 9, 9, 0, 9, 9, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 2] },
  { options: { temp: 2, topP: 0.9, minP: 0.05, topK: 6 }, tokens: [0, 10, 2, 2, 5, 0, 9, 5, 0, 5, 9, 9, 10, 2, 7, 2, 7, 5, 9, 0] },
  { options: {}, tokens: new Array(20).fill(9) },
];

Deno.test("KeySequence gives the keys of MLX's random state", () => {
  const keys = new KeySequence(7);
  assertEquals([keys.next(), keys.next(), keys.next()], [[1948237315, 1058547403], [2076423625, 3773764719], [
    2443724679,
    1143068444,
  ]]);
  assertEquals(new KeySequence(2 ** 40 + 5).next(), [3246284531, 1850734787]);
});

for (const device of testDevices()) {
  Deno.test(`makeSampler() draws what mlx-lm draws on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const { options, tokens } of DRAWS) {
      const found = mx.tidy(() => {
        const sampler = makeSampler({ ...options, seed: 7 });
        let state: mx.Tensor = mx.array([...sampler.key ?? [0, 0]], mx.uint32);
        return tokens.map(() => {
          const [stays, draw] = mx.split(mx.random.split(state), 2).map((key) => key.reshape(2));
          state = stays;
          return sampler(mx.array([LOGITS]), draw).item();
        });
      });
      assertEquals(found, [...tokens], JSON.stringify(options));
    }
  });

  Deno.test(`makeLogitsProcessors() adds a bias, then subtracts the presence penalty once, on ${device}`, () => {
    mx.setDefaultDevice(device);
    const bias = { 0: -Infinity, 9: 1.25, 3: -0.5 };
    const processors = makeLogitsProcessors({ logitBias: bias, presencePenalty: 0.75 });
    assertEquals(processors.map(({ graph }) => graph), ["bias 0,-Infinity,3,-0.5,9,1.25", "presence 0.75"]);
    const recent = mx.array([3, 4, 5, 5, 9], mx.int32);
    const values = mx.tidy(() =>
      processors.reduce<mx.Tensor>((x, process) => process(recent, x), mx.array([LOGITS, LOGITS])).tolist()
    );
    mx.dispose(recent);
    const expected = LOGITS.map((x, i) =>
      x + ((bias as Record<number, number>)[i] ?? 0) - ([3, 4, 5, 9].includes(i) ? 0.75 : 0)
    );
    const near = (row: number[]): number[] => row.map((x) => Math.round(x * 1e5) / 1e5);
    assertEquals((values as number[][]).map(near), [near(expected), near(expected)]);
  });

  Deno.test(`makeLogitsProcessors() subtracts the frequency penalty each time, on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [process, ...others] = makeLogitsProcessors({ frequencyPenalty: 0.75 });
    assertEquals([process.graph, process.counts, others], ["frequency 0.75", true, []]);
    const rows = [[3, 4, 5, 5, 9], [0, 0, 0, 7, 7]];
    const weights = [[1, 1, 1, 1, 1], [1, 0, 0, 1, 1]];
    const expect = (use: readonly number[][]): string[][] =>
      use.map((weight, row) =>
        LOGITS.map((x, i) => (x - 0.75 * rows[row].reduce((n, id, j) => n + (id === i ? weight[j] : 0), 0)).toFixed(5))
      );
    const [weighted, whole] = mx.tidy(() => {
      const [recent, logits] = [mx.array(rows, mx.int32), mx.array([LOGITS, LOGITS])];
      return [process(recent, logits, mx.array(weights)), process(recent, logits)].map((x) => x.tolist() as number[][]);
    });
    const near = (values: number[][]): string[][] => values.map((row) => row.map((x) => x.toFixed(5)));
    assertEquals(near(weighted), expect(weights));
    assertEquals(near(whole), expect([weights[0], weights[0]]));
  });

  Deno.test(`the frequency penalty takes memory by the number of recent tokens, on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [process] = makeLogitsProcessors({ frequencyPenalty: 0.25 });
    const count = 4096; // a table of pairs would take 64 MB
    mx.tidy(() => {
      const [recent, logits] = [mx.arange(count), mx.zeros([1, 8])];
      mx.resetPeakMemory();
      const before = mx.getPeakMemory();
      assertEquals(process(mx.remainder(recent, 4), logits).tolist(), [[-256, -256, -256, -256, 0, 0, 0, 0]]);
      assert(mx.getPeakMemory() - before < 2 ** 20, `${mx.getPeakMemory() - before} bytes`);
    });
  });

  Deno.test(`makeLogitsProcessors() penalizes each recent token once, by its sign, on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [penalize] = makeLogitsProcessors({ repetitionPenalty: 1.5 });
    const recent = mx.array([3, 4, 5, 5, 9], mx.int32);
    const values = mx.tidy(() => penalize(recent, mx.array([LOGITS])).tolist()) as number[][];
    mx.dispose(recent);
    const expected = LOGITS.map((x, i) => ![3, 4, 5, 9].includes(i) ? x : x < 0 ? x * 1.5 : x / 1.5);
    assertEquals(values[0].map((x) => Math.fround(x).toFixed(5)), expected.map((x) => x.toFixed(5)));
  });
}

Deno.test("makeSampler() names options out of range", () => {
  const wrong = (options: mx.lm.SamplerOptions, message: string) =>
    assertThrows(() => makeSampler(options), LlmError, message);
  wrong({ temp: -1 }, "temp is -1, expected a number from 0 to 100");
  wrong({ temp: NaN }, "temp is NaN");
  const untyped = (options: Record<string, unknown>): mx.lm.SamplerOptions => options;
  wrong(untyped({ temp: "0.5" }), 'temp is "0.5", expected a number');
  wrong(untyped({ minP: null }), "minP is null, expected a number");
  wrong({ topP: 1.5 }, "topP is 1.5, expected a number from 0 to 1");
  wrong({ topK: 2.5 }, "topK is 2.5, expected an integer of at least 0");
  wrong({ minP: -0.1 }, "minP is -0.1");
  wrong({ temp: 1, seed: -1 }, "seed is -1, expected an integer from 0 to 2^53 - 1");
  assertThrows(
    () => makeLogitsProcessors({ repetitionPenalty: 0 }),
    LlmError,
    "repetitionPenalty is 0, expected a number above 0",
  );
  assertEquals(makeLogitsProcessors({ repetitionPenalty: 1, presencePenalty: 0, logitBias: {} }), []);
  const refused = (options: mx.lm.LogitsOptions, message: string) =>
    assertThrows(() => makeLogitsProcessors(options), LlmError, message);
  refused({ presencePenalty: NaN }, "presencePenalty is NaN, expected a number");
  refused(untyped({ logitBias: null }), "logitBias is null, expected an object of numbers by token id");
  refused({ frequencyPenalty: Infinity }, "frequencyPenalty is Infinity, expected a number");
  refused({ logitBias: { [-1]: 2 } }, "logitBias has a token that is -1, expected the id of a token");
  refused({ logitBias: { 5: Infinity } }, "logitBias[5] is Infinity, expected a number or -Infinity");
});
