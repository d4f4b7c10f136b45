/**
 * Prompts that an engine reads in one pass. The pass over tiles of several sequences gives the logits that each prompt has alone, and writes
 * into no page of others. Requests get the tokens that they get alone, whatever they share, also where one of them leaves.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { PAGE } from "../../../src/graph/kv_layout.ts";
import { forwardBatch } from "../../../src/llm/engine/forward_batch.ts";
import { Sequence } from "../../../src/llm/engine/sequence.ts";
import type { PrefillRow } from "../../../src/llm/engine/step.ts";
import { PagedCache } from "../../../src/llm/kv/paged.ts";
import type { Cache } from "../../../src/llm/kv/cache.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { drawsCases, drawSome } from "../../support/draw_cases.ts";
import {
  assertAlike,
  type Loaded,
  take,
  takeAlone,
  tinyPage,
  TOLERANCE,
} from "../../support/models/engine_requests.ts";
import { idleAfter } from "../../support/models/idle_after.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const TEXT = GOLDEN.flatMap(({ ids, greedy }) => [...ids, ...greedy]).filter((id) => id < 4089);

/** A prompt of a number of tokens that begins at another place of a text. */
function idsOf(count: number, from: number): number[] {
  return Array.from({ length: count }, (_, i) => TEXT[(from + i) % TEXT.length]);
}

/** The part of a prompt from `from` on, in pages from `page` on. */
function partOf(tokens: readonly number[], from: number, page: number, count = tokens.length - from): PrefillRow {
  const sequence = new Sequence({ id: page, prompt: tokens, maxTokens: 1 });
  sequence.tables = [Array.from({ length: Math.ceil(tokens.length / PAGE) }, (_, i) => page + i)];
  return { sequence, from, count, last: from + count === tokens.length, copies: [] };
}

Deno.test("parts of several prompts are cut into tiles, each with the pages and the position of its own", () => {
  const parts = [
    partOf([1, 2, 3, 4, 5, 6], 0, 7),
    partOf(idsOf(70, 0), 62, 20),
    partOf([9, 8, 7], 0, 9, 2),
    partOf([5], 0, 3),
  ];
  const { tiles, ids, positions, tables: [table], columns, slots, last } = forwardBatch(parts, {
    tile: 1,
    tiled: false,
  });
  const end = idsOf(70, 0).slice(62);
  assertEquals([tiles, columns, slots.length], [6, 4, 6]);
  assertEquals([...ids], [1, 2, 3, 4, 5, 6, 6, 6, ...end, 9, 8, 8, 8, 5, 5, 5, 5]);
  assertEquals([...positions], [0, 4, 62, 66, 0, 0]);
  // What padding writes beyond the pages of a part goes to page 0.
  const tables = Array.from({ length: tiles }, (_, i) => [...table.slice(i * columns, (i + 1) * columns)]);
  assertEquals(tables, [[7, 0, 0, 0], [7, 0, 0, 0], [20, 21, 0, 0], [20, 21, 0, 0], [9, 0, 0, 0], [3, 0, 0, 0]]);
  assertEquals([...last], [5, 15, 20]); // none of the part that does not end its prompt
});

Deno.test("the shape of a pass depends on few numbers of tiles where kernels compute in tiles", () => {
  const shapes = new Set<string>();
  for (let count = 2; count <= 60; count++) {
    const parts = Array.from({ length: count }, (_, i) => partOf(idsOf(1 + (7 * i) % 32, i), 0, 1 + i));
    const { tiles, ids, last, columns } = forwardBatch(parts, { tile: 8, tiled: true });
    assertEquals([ids.length, tiles >= count, last.length >= count], [32 * tiles, true, true]);
    shapes.add([tiles, columns, last.length].join());
  }
  assert(shapes.size <= 20, `${shapes.size} shapes`);
  // As many tiles of unlike prompts are one shape.
  const few = [[512, 512], [980, 24], [1, 960, 1], [7, 850, 60, 1, 1]].map((counts) => {
    const { tiles, columns, last } = forwardBatch(counts.map((n, i) => partOf(idsOf(n, i), 0, 1 + 40 * i)), {
      tile: 8,
      tiled: true,
    });
    return [tiles, columns, last.length];
  });
  assertEquals(few, Array(4).fill([32, 16, 8]));
  // A part alone fits into such a pass, where tiles after it belong to page 0.
  const shape = { tiles: 32, columns: 16, ends: 8 };
  const alone = forwardBatch([partOf(idsOf(70, 0), 0, 5)], { tile: 8, tiled: true }, shape)!;
  assertEquals([alone.tiles, alone.columns, alone.ids.length, [...alone.last]], [32, 16, 1024, Array(8).fill(69)]);
  assertEquals([...alone.positions].slice(0, 4), [0, 32, 64, 0]);
  assertEquals([...alone.tables[0].slice(2 * 16, 4 * 16)], [5, 6, ...Array(30).fill(0)]);
  for (const less of [{ tiles: 2 }, { columns: 1 }, { ends: 0 }]) {
    assertEquals(
      forwardBatch([partOf(idsOf(70, 0), 0, 5)], { tile: 8, tiled: true }, { ...shape, ...less }),
      undefined,
    );
  }
  // A table has room for the padding of a part: positions beyond it would shift those that attention sees.
  const { columns } = forwardBatch([partOf(idsOf(250, 0), 230, 1)], { tile: 8, tiled: true });
  assertEquals(columns * PAGE >= 230 + 32, true);
});

for (const device of DEVICES) {
  const shared: { loaded?: Loaded } = {};
  const test = (name: string, work: () => Promise<void>, ignore: boolean = false): void =>
    Deno.test({ name, ignore, fn: idleAfter(() => shared.loaded?.model, work) });
  const load = async (): Promise<Loaded> => shared.loaded ??= await mx.lm.load(TINY_DIR, { device });
  const tolerance = TOLERANCE[hasMatrices(device) ? "matrices" : "exact"];

  test(`a pass over tiles of several sequences gives the logits of each alone on ${device}`, async () => {
    const model = decodingModel((await load()).model);
    const { layers, heads, headDim, blocks, dtype } = model.poolSizes();
    // Few enough tokens that the CPU does not round them to 8 bits.
    const prompts = [1, 3, 4, 5, 10, 9].map((count, i) => idsOf(count, 11 * i));
    const parts = prompts.map((prompt, i) => partOf(prompt, 0, 1 + i));
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const batch = forwardBatch(parts, model.device);
        const pages = prompts.length + 2;
        const fill = (block: number): mx.Tensor[] =>
          Array.from({ length: layers }, () => mx.full([pages, heads, headDim / block, PAGE, block], 7, dtype));
        const buffers = { keys: fill(blocks.keys), values: fill(blocks.values) };
        const cache = new PagedCache(
          buffers,
          mx.array([...batch.positions], mx.int32),
          mx.array([...batch.tables[0]], mx.int32).reshape(batch.tiles, batch.columns),
          { tile: batch.ids.length / batch.tiles },
        );
        const last = mx.array([...batch.last], mx.uint32);
        const together = model.forward(mx.array([[...batch.ids]], mx.int32), cache, last);
        // The oracle has no cache, and a row for each prompt: what follows a prompt is seen by no token before.
        const length = Math.max(...prompts.map(({ length }) => length));
        const padded = prompts.map((prompt) => [...prompt, ...new Array(length - prompt.length).fill(0)]);
        const alone = model.forward(mx.array(padded, mx.int32));
        for (const [i, prompt] of prompts.entries()) {
          const own = mx.take(together, mx.array([i], mx.int32), 1);
          const row = mx.take(alone.reshape(-1, own.shape[2]), mx.array([i * length + prompt.length - 1], mx.int32), 0);
          const off = mx.max(mx.abs(mx.subtract(own.astype(mx.float32), row.astype(mx.float32)))).item();
          // The pool may be in float16.
          assert(off < (dtype === mx.float16 ? 2 ** -7 : tolerance), `prompt ${i}: ${off} off`);
        }
        // The last page belongs to no prompt.
        for (const pool of [...cache.keys, ...cache.values]) {
          const untouched = mx.take(pool, mx.array([pages - 1], mx.int32), 0);
          assertEquals(mx.all(mx.equal(untouched, 7)).item(), true, "a page of another sequence was written");
        }
      }));
  }, drawsCases(device)); // a pass that is not traced compiles its pipelines one after another, for minutes

  for (const kvBits of [undefined, 8] as const) {
    const name = kvBits ? " with keys and values of 8 bits" : "";
    test(`prompts read together get the tokens of each alone${name} on ${device}`, async () => {
      const loaded = await load();
      const { model } = loaded;
      const shapes: string[] = [];
      const { hidden } = model;
      model.hidden = (tokens: mx.Tensor, cache?: Cache, rows?: mx.Tensor): mx.Tensor => {
        if (rows && cache?.tile && cache.tile < tokens.shape[1]) shapes.push(`${tokens.shape[1] / cache.tile} tiles`);
        return hidden.call(model, tokens, cache, rows);
      };
      try {
        await using engine = new mx.lm.Engine(model, loaded.tokenizer, {
          kvBytes: 40 * tinyPage(device),
          maxSequences: 12,
          prefillStepSize: 256,
          ...(kvBits && { kvBits }),
        });
        const options: Partial<mx.lm.EngineRequest>[] = [
          {},
          { temp: 0.9, seed: 3 },
          { logprobs: 3 },
          { temp: 1.2, topK: 7, seed: 4, logprobs: 1 },
          { repetitionPenalty: 1.3 },
          { logitBias: { 300: 3 } },
          { responseFormat: { type: "regex", regex: "[a-z ]{9}" } },
        ];
        const counts = [1, 3, 31, 32, 33, 5, 17];
        const requests = drawSome(device, "requests read together", counts, 3).map((count, i): mx.lm.EngineRequest => ({
          prompt: idsOf(count, 29 * i),
          maxTokens: 5,
          ...options[i],
        }));
        const served = await Promise.all(requests.map((request) => take(engine.add(request))));
        assert(shapes.length > 0, "no prompts were read together");
        if (kvBits) {
          // streamGenerate has no such keys and values: the oracle is an engine that has one request at a time.
          for (const [i, request] of requests.entries()) {
            await using alone = new mx.lm.Engine(model, loaded.tokenizer, { kvBytes: 4 * tinyPage(device), kvBits });
            // A number between two codes becomes either of them after a rounding, of which matrix units have more. The codes themselves
            // move these log probabilities by up to 0.26.
            const limit = hasMatrices(device) ? 2 ** -4 : 2 ** -6;
            assertAlike(served[i], await take(alone.add(request)), `request ${i}`, limit);
          }
        } else {
          for (const [i, request] of requests.entries()) {
            assertAlike(served[i], await takeAlone(loaded, request), `request ${i}`, tolerance);
          }
        }
      } finally {
        model.hidden = hidden;
      }
    });
  }

  test(`prompts share pages that the same step fills, and go on where others leave, on ${device}`, async () => {
    const loaded = await load();
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
      kvBytes: 40 * tinyPage(device),
      prefillStepSize: 512,
    });
    // The second prompt has the first page in common with the first one, and nothing of the next page.
    const first = idsOf(PAGE + 9, 0);
    const prompts = [first, [...first.slice(0, PAGE), 7, 8, 9], idsOf(20, 50), idsOf(6, 70), idsOf(9, 90)];
    const aborter = new AbortController();
    const left = take(engine.add({ prompt: prompts[3], maxTokens: 40, signal: aborter.signal })).catch(() => undefined);
    const served = [0, 1, 2, 4].map((i) =>
      take(engine.add({ prompt: prompts[i], maxTokens: 6 }), () => aborter.abort())
    );
    for (const [i, responses] of (await Promise.all(served)).entries()) {
      const request = { prompt: prompts[[0, 1, 2, 4][i]], maxTokens: 6 };
      assertAlike(responses, await takeAlone(loaded, request), `request ${i}`, tolerance);
    }
    assertEquals((await served[1])[0].cachedTokens, PAGE);
    await left;
    assertEquals(engine.metrics.running, 0);
  });

  test(`a prompt is read to the end of its last page where the padding needs another one on ${device}`, async () => {
    const loaded = await load();
    await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, { kvBytes: 20 * tinyPage(device) });
    const prompt = idsOf(250, 0);
    await take(engine.add({ prompt: prompt.slice(0, 230), maxTokens: 1 }));
    // The CPU, which pads nothing, rounds long prompts by the length of a part: their tokens stay, log probabilities do not.
    const request = { prompt, maxTokens: 4, ...(device !== "wasm" && { logprobs: 2 }) };
    const served = await take(engine.add(request));
    assertEquals(served[0].cachedTokens, 230);
    assertAlike(served, await takeAlone(loaded, request), "the prompt", tolerance);
  });

  test(`the model of these tests is freed on ${device}`, async () => {
    await shared.loaded?.model.traces.idle();
    shared.loaded?.model[Symbol.dispose]();
  });
}
