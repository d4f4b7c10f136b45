/**
 * An engine whose keys and values have 8 bits. Its tokens are those of the definition in primitives, whatever the company, in half of the
 * memory. Texts are predicted nearly as well as with all digits.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { KV_CODES } from "../../../src/graph/kv_codes.ts";
import { bufferShape, PAGE } from "../../../src/graph/kv_layout.ts";
import { PagedCache } from "../../../src/llm/kv/paged.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withoutMatrices } from "../../support/devices/matrices.ts";
import { take, tinyPage } from "../../support/models/engine_requests.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Mean negative log-likelihood of the tokens after the first one, with keys and values in pages of a dtype. */
function likelihood(model: mx.lm.LanguageModel, ids: readonly number[], dtype: mx.Dtype): number {
  const columns = Math.ceil(ids.length / PAGE);
  const { layers, heads, headDim, blocks } = decodingModel(model).poolSizes();
  return mx.tidy(() => {
    const [keys, values] = [blocks.keys, blocks.values].map((block) => {
      const shape = bufferShape({ batch: columns, heads, headDim, positions: PAGE, block });
      return Array.from({ length: layers }, () => mx.zeros(shape, dtype));
    });
    const table = mx.array([Array.from({ length: columns }, (_, i) => columns - 1 - i)], mx.int32);
    const cache = new PagedCache({ keys, values }, mx.zeros([1], mx.int32), table);
    const logits = model.forward(mx.array([ids.slice(0, -1)], mx.int32), cache).astype(mx.float32);
    const scores = mx.subtract(logits, mx.logsumexp(logits, -1, true));
    const next = mx.array([ids.slice(1).map((id) => [id])], mx.int32);
    return -mx.mean(mx.takeAlongAxis(scores, next, -1)).item();
  });
}

for (const device of DEVICES) {
  Deno.test(`texts are predicted as well with 8 bits on ${device}`, async () => {
    const exact = withoutMatrices(device); // which compute in 16 bits
    const { model } = await mx.lm.load(TINY_DIR, { device: exact });
    mx.setDefaultDevice(exact);
    const ids = GOLDEN.flatMap(({ ids, greedy }) => [...ids, ...greedy]).slice(0, 400);
    const [all, half, coded] = [mx.float32, mx.float16, KV_CODES].map((dtype) => likelihood(model, ids, dtype));
    assert(Math.abs(half - all) < 1e-3 * all, `${half} in float16, ${all} in float32`);
    assert(Math.abs(coded - all) < 5e-3 * all, `${coded} with 8 bits, ${all} in float32`);
    assert(coded !== all && coded !== half);
    model[Symbol.dispose]();
  });

  Deno.test(`an engine with 8 bits chooses the tokens of the definition on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: withoutMatrices(device) });
    const requests = GOLDEN.slice(0, 3).map(({ ids }) => ({ prompt: ids, maxTokens: 20 }));
    const options = { kvBits: 8, kvBytes: 16 * tinyPage(device), maxSequences: 4, prefillStepSize: 64 } as const;
    const together = async (): Promise<number[][]> => {
      await using engine = new mx.lm.Engine(model, tokenizer, options);
      const pageBytes = 2 * 64 * 8 * 2 * 128;
      assertEquals(engine.metrics.kvBytes, Math.floor(options.kvBytes / pageBytes) * pageBytes);
      const all = requests.map((request) => take(engine.add(request)));
      return (await Promise.all(all)).map((responses) => responses.map(({ token }) => token));
    };
    const alone = async (): Promise<number[][]> => {
      await using engine = new mx.lm.Engine(model, tokenizer, options);
      const all: number[][] = [];
      for (const request of requests) all.push((await take(engine.add(request))).map(({ token }) => token));
      return all;
    };
    const fused = await together();
    assertEquals(await alone(), fused);
    // Tokens follow the text as with all digits, at least at its beginning.
    GOLDEN.slice(0, 3).forEach(({ greedy }, i) => assertEquals(fused[i].slice(0, 4), greedy.slice(0, 4)));
    await model.traces.idle();
    model.traces[Symbol.dispose]();
    {
      using _options = withOptions({ fuse: false });
      assertEquals(await together(), fused);
    }
    await model.traces.idle();
    model[Symbol.dispose]();
  });
}
