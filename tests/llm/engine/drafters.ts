/**
 * What drafts the requests of an engine: a recorded answer, n-grams, a smaller model, and the head of the model itself. Some tests hold for all of
 * them.
 */

import * as mx from "../../../mod.ts";
import { pageBytes, slotBytes } from "../../../src/llm/kv/paged.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { DRAFT_CASES, loadWithHead, writeWithHead } from "../../support/models/draft_heads.ts";
import { replay } from "../../support/models/engine_requests.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

/** Whatever it costs, so that each step drafts. */
export const ALWAYS = { adaptive: false } as const;

/** Something that drafts. */
export interface DrafterRow {
  readonly name: string;
  /** Loads the model whose requests it drafts. */
  readonly load: (device: string) => Promise<mx.lm.Loaded>;
  /** Token number i of prompts after which that model goes on for long. */
  readonly token: (i: number) => number;
  /** Options of the engine, by that model. */
  readonly engine: (loaded: mx.lm.Loaded) => Pick<mx.lm.EngineOptions, "speculation">;
  /** Options of a request, by its answer. */
  readonly request: (answer: readonly number[], i: number) => Pick<mx.lm.EngineRequest, "speculation">;
}

const tiny = {
  load: (device: string): Promise<mx.lm.Loaded> => mx.lm.load(TINY_DIR, { device }),
  token: (i: number): number => GOLDEN[1].ids[i % GOLDEN[1].ids.length],
} as const;
const nothing = (): object => ({});

/** A model whose head is right about as often as it is wrong. */
async function headed(device: string): Promise<mx.lm.Loaded> {
  const dir = await Deno.makeTempDir();
  try {
    await writeWithHead(dir, DRAFT_CASES[0]);
    return await loadWithHead(dir, 0.05, device);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

/** All of them. */
export const DRAFTERS: readonly DrafterRow[] = [
  {
    name: "recorded answers",
    ...tiny,
    engine: nothing,
    request: (answer, i) => ({
      speculation: { drafter: replay(answer, [3, 7, 1, 0][i % 4], i % 2 === 1), numDraftTokens: 7, ...ALWAYS },
    }),
  },
  { name: "n-grams", ...tiny, engine: () => ({ speculation: { drafter: "ngrams", ...ALWAYS } }), request: nothing },
  {
    name: "a draft model",
    ...tiny,
    engine: (loaded) => ({ speculation: { drafter: loaded, numDraftTokens: 3, ...ALWAYS } }),
    request: nothing,
  },
  {
    name: "the model's head",
    load: headed,
    token: (i) => (i * 271 + 13) % 500,
    engine: () => ({ speculation: { drafter: "mtp", ...ALWAYS } }),
    request: nothing,
  },
];

/** Options of an engine of few pages, with the recurrent states of each sequence where the model has some. */
export function smallEngine(
  { model }: mx.lm.Loaded,
  { speculation }: Pick<mx.lm.EngineOptions, "speculation">,
  { pages, maxSequences }: { readonly pages: number; readonly maxSequences: number },
): mx.lm.EngineOptions {
  const sizes = decodingModel(model).poolSizes(speculation?.drafter === "mtp");
  const kvBytes = pages * pageBytes(sizes) + (maxSequences + 1) * slotBytes(sizes);
  return { kvBytes, maxSequences, contextSize: 192, ...(speculation && { speculation }) };
}
