/**
 * Engines of models whose layers have windows: those layers keep the pages of their windows only. Tokens are those of `streamGenerate`, which keeps all positions. Prompts are longer than the window, go on after kept prefixes, or give up their memory.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { isBlocked, PAGE } from "../../../src/graph/kv_layout.ts";
import { pagesOfWindow } from "../../../src/llm/kv/page_groups.ts";
import { pageBytes } from "../../../src/llm/kv/paged.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { drawsCases } from "../../support/draw_cases.ts";
import { checkpointOf } from "../../support/models/changed_checkpoints.ts";
import { assertAlike, type Loaded, take, takeAlone } from "../../support/models/engine_requests.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const WINDOW = 70;
/** Tokens of a prompt that a step reads. */
const STEP = 64;

/** A model of a family, with a longer window. */
interface WindowCase {
  readonly checkpoint: string;
  readonly changes?: Readonly<Record<string, unknown>>;
  /** Units of a page, for layers that see all and for those with a window. */
  readonly units: readonly [full: number, windowed: number];
  /** Whether all tests have it, on software Vulkan too, where the others take long. */
  readonly isShort?: boolean;
}

const CASES: Readonly<Record<string, WindowCase>> = {
  "Gemma 3": { checkpoint: "Gemma 3 text, 4 bits", units: [1, 3], isShort: true },
  "Mistral": {
    checkpoint: "Mistral with windows, 4 bits",
    changes: { layer_types: ["sliding_attention", "sliding_attention"] },
    units: [0, 1],
    isShort: true,
  },
  "Mistral in fused steps": {
    checkpoint: "Mistral with windows and layers that kernels compute, 4 bits",
    changes: { layer_types: ["sliding_attention", "sliding_attention"] },
    units: [0, 1],
  },
  "Mistral with other layers": { checkpoint: "Mistral with windows, 4 bits", units: [1, 1] },
  "gpt-oss": { checkpoint: "gpt-oss, 4 bits", units: [1, 1] },
  "OLMo 3": { checkpoint: "OLMo 3, 4 bits", units: [1, 3] },
  // Of the layers that see all, two share a slot.
  "Gemma 4": { checkpoint: "Gemma 4 with keys and values that layers share, 4 bits", units: [1, 2] },
};

/** Runs a test with a model. */
async function withModel(
  { checkpoint, changes }: WindowCase,
  device: string,
  body: (loaded: Loaded) => Promise<void>,
): Promise<void> {
  const dir = await Deno.makeTempDir();
  // The CPU would round activations of long parts of prompts, and close tokens would change places.
  const run = device === "wasm" ? withExactCpu : (work: () => Promise<void>): Promise<void> => work();
  try {
    const known = checkpointOf(checkpoint);
    const config = { ...JSON.parse(known.config), sliding_window: WINDOW, ...changes };
    await writeCheckpoint(dir, { ...known, config: JSON.stringify(config) });
    await run(async () => {
      mx.setDefaultDevice(device);
      const loaded = await mx.lm.load(dir, { device });
      await body(loaded);
      await loaded.model.traces.idle();
      loaded.model[Symbol.dispose]();
    });
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

/** A prompt of a number of tokens; those of one seed begin alike. */
function idsOf(count: number, seed = 1): number[] {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = Math.imul(state, 1664525) + 1013904223 | 0;
    return 3 + (state >>> 8) % 500;
  });
}

/** Bytes of so many units. */
function bytesOf({ model }: Loaded, units: number): number {
  return units * pageBytes(decodingModel(model).poolSizes());
}

/** A request beside others and alone. */
async function check(
  engine: mx.lm.Engine,
  loaded: Loaded,
  requests: readonly mx.lm.EngineRequest[],
  options: Pick<mx.lm.GenerateOptions, "kvBits"> = {},
): Promise<mx.lm.EngineResponse[][]> {
  const served = await Promise.all(requests.map((request) => take(engine.add(request))));
  for (const [i, request] of requests.entries()) {
    assertAlike(served[i], await takeAlone(loaded, { ...request, ...options }), `request ${i}`);
  }
  return served;
}

for (const device of DEVICES) {
  for (const [name, one] of Object.entries(CASES)) {
    const [full, windowed] = one.units;
    const test = (what: string, body: (loaded: Loaded) => Promise<void>, ignore = drawsCases(device)): void =>
      Deno.test({ name: `${name}: ${what} on ${device}`, ignore, fn: () => withModel(one, device, body) });

    test("requests get the tokens that they get alone, also after kept prefixes", async (loaded) => {
      const { groups, blocks, headDim } = decodingModel(loaded.model).poolSizes();
      // Fused steps read one table: where they serve layers with and without windows, all keep their pages.
      const haveOneTable = isBlocked(blocks, headDim) && full > 0;
      const found = [groups?.full, groups?.windowed, groups?.window];
      assertEquals(found, haveOneTable ? [undefined, undefined, undefined] : [full, windowed, WINDOW]);
      const kvBytes = bytesOf(loaded, 30 * full + 14 * windowed);
      const options = { kvBytes, prefillStepSize: STEP, maxSequences: 4 };
      await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, options);
      const long = idsOf(333);
      const [first] = await check(engine, loaded, [
        { prompt: long, maxTokens: 70 },
        { prompt: idsOf(100, 2), maxTokens: 20 },
        { prompt: [...long.slice(0, 200), 7, 8, 9], maxTokens: 20 },
      ]);
      const answer = first.map(({ token }) => token);
      const [[next]] = await check(engine, loaded, [{ prompt: [...long, ...answer, 4, 5, 6], maxTokens: 10 }]);
      // The last token has keys and values where a step went on after it.
      const count = long.length + answer.length;
      assert(count - next.cachedTokens! <= 1, `${next.cachedTokens} of ${count} tokens were not read again`);
      const [[again]] = await check(engine, loaded, [{ prompt: long, maxTokens: 5 }]);
      assertEquals(again.cachedTokens, long.length - 1);
      const { kvBytesUsed, preemptions } = engine.metrics;
      assert(kvBytesUsed <= kvBytes && preemptions === 0);
    }, drawsCases(device) && !one.isShort);

    if (!one.isShort) continue;

    test("a long sequence has the memory of its windows", async (loaded) => {
      const [pages, kept] = [17, pagesOfWindow(WINDOW) + 2 * STEP / PAGE];
      const kvBytes = bytesOf(loaded, pages * full + kept * windowed);
      const options = { kvBytes, prefillStepSize: STEP };
      await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, options);
      const held = full === 0 ? 4096 : pages * PAGE;
      assert(engine.contextSize >= held, `${engine.contextSize} tokens fit`);
      await check(engine, loaded, [{ prompt: idsOf(pages * PAGE - 30), maxTokens: 30 }]);
      assertEquals([engine.metrics.preemptions, engine.metrics.kvBytes], [0, kvBytes]);
    });

    test("requests that give up their memory go on as if they had it", async (loaded) => {
      // Each prompt has nearly one page, and its answer two others.
      const kvBytes = bytesOf(loaded, 5 * (full + windowed));
      await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, { kvBytes, prefillStepSize: STEP });
      await check(engine, loaded, [1, 2, 3].map((seed) => ({ prompt: idsOf(57 + seed, seed), maxTokens: 90 })));
      assert(engine.metrics.preemptions > 0, "no request gave up its memory");
    });

    test("keys and values may have 8 bits", async (loaded) => {
      const options = {
        kvBytes: bytesOf(loaded, 20 * full + 10 * windowed),
        prefillStepSize: STEP,
        kvBits: 8,
      } as const;
      await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, options);
      await check(engine, loaded, [{ prompt: idsOf(250), maxTokens: 12 }], { kvBits: 8 });
    });

    test("memory is freed, also of requests that are aborted", async (loaded) => {
      const options = { kvBytes: bytesOf(loaded, 30 * full + 14 * windowed), prefillStepSize: STEP };
      const run = async (): Promise<void> => {
        await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, options);
        for await (const _ of engine.add({ prompt: idsOf(200), maxTokens: 40 })) break;
        await check(engine, loaded, [{ prompt: idsOf(250), maxTokens: 4 }]);
      };
      await run();
      const before = mx.getActiveMemory();
      await run();
      assertEquals(mx.getActiveMemory(), before);
    });
  }
}

Deno.test("prompts of a batch get the tokens that they get alone", () =>
  withModel(CASES["Gemma 3"], "wasm", async (loaded) => {
    const prompts = [[...idsOf(300), 9], idsOf(20, 2), [...idsOf(300), 8], idsOf(140, 3)];
    const { tokens } = await mx.lm.batchGenerate(loaded.model, loaded.tokenizer, prompts, { maxTokens: 90 });
    for (const [i, prompt] of prompts.entries()) {
      const alone = await takeAlone(loaded, { prompt, maxTokens: 90 });
      assertEquals(tokens[i], alone.map(({ token }) => token), `prompt ${i}`);
    }
  }));
