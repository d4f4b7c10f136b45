/**
 * Models whose layers are on two devices give the logits and tokens of one device, alone and in an engine. They leave nothing on either.
 * The other device is a second one on the CPU. Dense checkpoints are computed by the same kernels there, so that they agree to the bit.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { CHECKPOINTS, PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const OTHER = "wasm-threads=1";
/** Copies of tied tables are multiplied by other kernels, and the cache of two kinds of device is float32. */
const LIMIT = 1e-6;
const NAMES = [
  "Qwen3 with use_sliding_window, bfloat16",
  "Qwen3-MoE, bfloat16",
  "LFM2, 4 bits",
  "Qwen3-Next, bfloat16",
  "Gemma 4 with keys and values that layers share, bfloat16",
  "Phi-3 with factors of wavelengths, bfloat16",
];
const SOFTWARE = new Set(mx.devices().filter(({ type }) => type === "cpu").map(({ name }) => name));

interface Computed {
  readonly logits: readonly number[];
  readonly next: readonly number[];
  readonly tokens: readonly number[];
  readonly texts: readonly string[];
}

/** What a model computes, alone and in a batch. */
async function compute({ model, tokenizer }: mx.lm.Loaded): Promise<Computed> {
  const last = (ids: readonly number[], cache: mx.lm.KvCache): number[] =>
    mx.tidy(() => model.forward(mx.array([[...ids]], mx.int32), cache).index(0, -1).tolist()) as number[];
  const cache = model.makeCache();
  const logits = last(PROMPTS[0], cache);
  const next = last([7], cache);
  cache.dispose();
  const tokens: number[] = [];
  const options = { maxTokens: 5, temp: 0 };
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, PROMPTS[0], options)) tokens.push(token);
  // A prompt in parts that is aborted, then read, and read again with another token near its end.
  const long = Array.from({ length: 40 }, (_, i) => PROMPTS[0][i % PROMPTS[0].length]);
  const edited = [...long.slice(0, 34), long[33], ...long.slice(35)];
  using kept = model.makeCache();
  const more = { maxTokens: 3, temp: 0, prefillStepSize: 8, cache: kept, cachePrompt: true };
  const controller = new AbortController();
  const onPrompt = (read: number): void => {
    if (read >= 16) controller.abort(new Error("enough"));
  };
  const aborted = mx.lm.streamGenerate(model, tokenizer, long, { ...more, signal: controller.signal, onPrompt });
  await assertRejects(() => Array.fromAsync(aborted), Error, "enough");
  for (const prompt of [long, edited]) {
    for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, more)) tokens.push(token);
  }
  const { texts } = await mx.lm.batchGenerate(model, tokenizer, [PROMPTS[0], PROMPTS[1]], options);
  return { logits, next, tokens, texts };
}

for (const device of testDevices()) {
  const names = SOFTWARE.has(device) ? NAMES.slice(2, 3) : NAMES;
  for (const checkpoint of CHECKPOINTS.filter(({ name }) => names.includes(name))) {
    Deno.test(`layers on two devices: ${checkpoint.name} on ${device} and the CPU`, async () => {
      mx.setDefaultDevice(device);
      const dir = await Deno.makeTempDir();
      const path = `${dir}/model`;
      try {
        await writeCheckpoint(path, checkpoint);
        const whole = await mx.lm.load(path, { device, dtype: mx.float32 });
        const wanted = await compute(whole);
        assertEquals(whole.parts, []);
        whole.model[Symbol.dispose]();

        const backends = [device, OTHER].map((name) => getBackend(name));
        const before = backends.map((backend) => backend.memory().active);
        const loaded = await mx.lm.load(path, { devices: [device, OTHER], dtype: mx.float32 });
        const { parts, model } = loaded;
        assertEquals([parts.map((part) => part.device), loaded.device], [[device, OTHER], OTHER]);
        const layers = model.makeCache().parts.length;
        assertEquals([parts[0].from, parts[0].to], [0, parts[1].from]);
        assert(parts[1].to >= layers, `${parts[1].to} layers`);
        backends.forEach((backend, i) => assert(backend.memory().active >= before[i] + parts[i].bytes));
        const found = await compute(loaded);
        const limit = checkpoint.name.endsWith("bfloat16") && device === "wasm" ? 0 : LIMIT;
        assert(nmse(found.logits, wanted.logits) <= limit, `logits ${nmse(found.logits, wanted.logits)}`);
        assert(nmse(found.next, wanted.next) <= limit, `logits of a step ${nmse(found.next, wanted.next)}`);
        assertEquals([found.tokens, found.texts], [wanted.tokens, wanted.texts]);
        model[Symbol.dispose]();
        assertEquals(backends.map((backend) => backend.memory().active), before, "memory is left");
      } finally {
        await Deno.remove(dir, { recursive: true });
      }
    });
  }
}
