/**
 * A step that only chooses tokens, of those that masks allow. Fused, it leaves the same state as op by op, and its tokens are those that
 * masked logits give.
 */

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop, hostVisible, writeState } from "../../../src/array/compile/loop.ts";
import { chooseStep, type DecodeScalars, forwardStep, type Masking } from "../../../src/llm/decode/state.ts";
import { logprobsWidth } from "../../../src/llm/sampling/logprobs_log.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator, nmse } from "../../support/oracles/oracle.ts";
import { choosingOf, type ChoosingSettings, SHAPE } from "../../support/models/sampling_states.ts";

/** Tokens of which the last word of a mask holds three. */
const VOCABULARY = 2051;
const WORDS = Math.ceil(VOCABULARY / 32);
const LOG = 4;
const STEPS = 6;

const SETTINGS: readonly ChoosingSettings[] = [
  {},
  { logprobs: 3 },
  { temp: 0.8 },
  { temp: 0.7, topK: 5, topP: 0.9 },
  { temp: 1, minP: 0.1, repetitionPenalty: 1.3, logprobs: 2 },
  { presencePenalty: 2, frequencyPenalty: 0.7, logitBias: { 7: 3, 8: -Infinity } },
];

/** The logits and masks of a step: the first row may be anything, the second one of three tokens, the others a half. The third has ties. */
function inputs(rows: number, step: number): { readonly logits: Float32Array; readonly masks: Uint32Array } {
  const next = generator(100 * rows + step);
  const logits = Float32Array.from({ length: rows * VOCABULARY }, () => next() * 12 - 6);
  const masks = Uint32Array.from({ length: rows * WORDS }, () => Math.floor(next() * 2 ** 32));
  masks.fill(0xffffffff, 0, WORDS);
  if (rows > 1) {
    masks.fill(0, WORDS, 2 * WORDS);
    for (const token of [5, 640, 2050]) masks[WORDS + (token >> 5)] |= 1 << (token & 31);
  }
  if (rows > 2) logits.fill(1.5, 2 * VOCABULARY + 700 * step % 1500, 3 * VOCABULARY);
  return { logits, masks };
}

const isAllowed = (masks: Uint32Array, row: number, token: number): boolean =>
  (masks[row * WORDS + (token >> 5)] >>> (token & 31) & 1) === 1;

/** The results of some steps: the tokens of each, and all other state. */
interface Left {
  readonly tokens: readonly number[][];
  readonly state: readonly number[];
  readonly logprobs: readonly number[];
}

async function choices(device: string, rows: number, settings: ChoosingSettings): Promise<Left> {
  const { logprobs, ...choosing } = settings;
  const options = choosingOf(settings);
  const ring = <T>(value: T): T[][] => Array.from({ length: rows }, () => Array(options.contextSize).fill(value));
  const state: DecodeScalars & Masking = mx.withDevice(device, () => ({
    token: mx.array(Array.from({ length: rows }, () => [3]), mx.int32),
    position: mx.array(Array.from({ length: rows }, (_, row) => row), mx.int32),
    key: options.sampler.key && mx.array(Array.from({ length: rows }, (_, row) => [row, 9]), mx.uint32),
    recent: options.processors.length > 0 ? mx.array(ring(11), mx.int32) : undefined,
    weights: "frequencyPenalty" in choosing ? mx.array(ring(1), mx.float32) : undefined,
    log: mx.zeros([rows, LOG], mx.int32),
    logprobs: logprobs === undefined ? undefined : mx.zeros([rows, LOG, logprobsWidth(logprobs)], mx.float32),
    logits: mx.zeros([rows, VOCABULARY]),
    mask: hostVisible(new Uint32Array(rows * WORDS), [rows, WORDS]),
  }));
  mx.setDefaultDevice(device);
  using loop = new DeviceLoop(state, (now: DecodeScalars & Masking) => chooseStep(options, now));
  const tokens: number[][] = [];
  for (let step = 0; step < STEPS; step++) {
    const { logits, masks } = inputs(rows, step);
    writeState(state.logits, logits);
    writeState(state.mask, masks);
    loop.run(1);
    await loop.done();
    tokens.push(state.token.reshape([-1]).tolist() as number[]);
  }
  const flat = (arrays: (mx.Tensor | undefined)[]): number[] =>
    arrays.flatMap((array) => array ? array.reshape([-1]).tolist() as number[] : []);
  return {
    tokens,
    state: flat([state.position, state.key, state.recent, state.weights, state.log]),
    logprobs: flat([state.logprobs]),
  };
}

/** Logits of steps that only compute them, in a model whose cache is empty at first. */
async function forwards(model: LanguageModel): Promise<number[]> {
  const cache = model.makeCache();
  cache.reserve(STEPS);
  const state = {
    token: mx.array([[11]], mx.int32),
    position: mx.array([0], mx.int32),
    logits: mx.zeros([1, SHAPE.vocab], mx.float32),
    keys: cache.keys,
    values: cache.values,
  };
  const found: number[] = [];
  {
    using loop = new DeviceLoop(state, (now) => forwardStep(model, now));
    for (let step = 0; step < 2; step++) {
      loop.run();
      await loop.done();
      found.push(...state.logits.toTypedArray() as Float32Array);
      writeState(state.token, Int32Array.of(7));
      writeState(state.position, Int32Array.of(step + 1));
    }
  }
  mx.dispose([state.token, state.position, state.logits]);
  cache.dispose();
  return found;
}

for (const device of testDevices()) {
  for (const rows of [1, 3, 66]) {
    Deno.test(`a choice of ${rows} masked rows is the same fused and op by op on ${device}`, async () => {
      for (const settings of rows > 3 ? SETTINGS.slice(3, 4) : SETTINGS) {
        const what = JSON.stringify(settings);
        const kernels: string[] = [];
        let found: Left | undefined;
        const profile = await mx.profile(async () => {
          found = await choices(device, rows, settings);
        }, { timed: false });
        kernels.push(...profile.kernels.map(({ kernel }) => kernel));
        using _options = withOptions({ fuse: false });
        const expected = await choices(device, rows, settings);
        assertEquals(found!.tokens, expected.tokens, what);
        assertEquals(found!.state, expected.state, what);
        found!.logprobs.forEach((x, i) => {
          if (Number.isFinite(expected.logprobs[i])) assertAlmostEquals(x, expected.logprobs[i], 1e-4, what);
          else assertEquals(x, expected.logprobs[i], what);
        });
        // Nothing is left beside the kernels of sampling, and zeros for the state, unless a penalty changes logits before.
        if (device !== "wasm" && settings.frequencyPenalty === undefined && settings.repetitionPenalty === undefined) {
          assert(kernels.every((kernel) => /^(sample_|logprobs|arange)/.test(kernel)), `${what}: ${kernels}`);
        }
      }
    });
  }

  Deno.test(`a masked choice is the likeliest token that its mask allows on ${device}`, async () => {
    const { tokens } = await choices(device, 3, {});
    tokens.forEach((chosen, step) => {
      const { logits, masks } = inputs(3, step);
      chosen.forEach((token, row) => {
        const own = logits.subarray(row * VOCABULARY, (row + 1) * VOCABULARY);
        const allowed = own.map((x, i) => isAllowed(masks, row, i) ? x : -Infinity);
        assertEquals(token, allowed.indexOf(Math.max(...allowed)), `step ${step}, row ${row}`);
      });
    });
  });

  Deno.test(`log probabilities of a masked choice are those among what its mask allows on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const { logits, masks } = inputs(2, 0);
      const all = mx.array(logits).reshape([2, VOCABULARY]);
      const tokens = [640, 640];
      const found = mx.fast.logprobs(all, mx.array(tokens, mx.int32), 2, mx.array(masks).reshape([2, WORDS])).tolist();
      for (const [row, [own, first, second, ...ids]] of (found as number[][]).entries()) {
        const allowed = Array.from({ length: VOCABULARY }, (_, i) => i).filter((i) => isAllowed(masks, row, i));
        const logit = (i: number): number => logits[row * VOCABULARY + i];
        const total = Math.log(allowed.reduce((sum, i) => sum + Math.exp(logit(i)), 0));
        const best = allowed.sort((a, b) => logit(b) - logit(a)).slice(0, 2);
        assertEquals(ids, best, `row ${row}`);
        [own, first, second].forEach((x, i) => assertAlmostEquals(x, logit([640, ...best][i]) - total, 1e-4));
      }
    });
  });

  Deno.test(`a forward step writes its logits where the choice reads them on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPE, { groupSize: 32 });
    const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
    mx.setDefaultDevice(device);
    let found: number[] = [];
    const { kernels } = await (async () => {
      using _options = withOptions({ regions: "on", launchMode: "barriers" });
      return await mx.profile(async () => void (found = await forwards(model)), { timed: false });
    })();
    using _options = withOptions({ regions: "off" });
    const expected = await forwards(model);
    const error = nmse(found, expected);
    assert(error <= 1e-6, `NMSE ${error}`);
    const copies = kernels.filter(({ kernel, op }) => kernel === "copy" && op !== "layout"); // those of weights come once
    if (device !== "wasm") assertEquals(copies, []);
    model[Symbol.dispose]();
    await Deno.remove(folder, { recursive: true });
  });

  Deno.test(`mx.fast.sample() refuses what is no mask of its logits on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const logits = mx.zeros([2, 33]);
      const message = (mask: mx.Tensor): string => {
        try {
          return mx.fast.sample(logits, { temperature: 0, mask }).tolist().toString();
        } catch (error) {
          return (error as Error).message;
        }
      };
      assertEquals(message(mx.array([[2, 0], [0, 1]], mx.uint32)), "1,32");
      assertEquals(message(mx.zeros([2, 2], mx.int32)), "sample() expected a mask of uint32 words: found int32");
      assertEquals(
        message(mx.zeros([2, 1], mx.uint32)),
        "sample() expected a mask of 2 words for each of 2 rows of 33 logits: found shape (2, 1)",
      );
    });
  });
}
