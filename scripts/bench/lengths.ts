/**
 * Measures prompts of lengths that are new to a process: `deno run -A --no-lock scripts/bench/lengths.ts`.
 *
 * Each line is one prompt of Qwen3-0.6B's shape, in the order given. It has its first time to the first token, the same once more, and the
 * wait for the second token. The first time traces and lowers the prompt, and compiles pipelines that neither the process nor the disk has.
 * With VKMX_CACHE set to an empty folder, these are all pipelines.
 *
 * @module
 */

import { type Flags, UsageError } from "../../src/cli/flags.ts";
import { print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { readCounts } from "../../src/cli/bench/figures.ts";
import { modelFolder } from "./compare.ts";
import { promptOf, timeTokens } from "../../src/cli/bench/tokens.ts";

const LENGTHS = [20, 50, 80, 110, 140, 170, 200, 250, 300, 400, 500, 600, 700];
/** Tokens of a run: more than one submission. */
const TOKENS = 40;

const FLAGS = {
  "device": { value: "NAME", help: "device to measure (the default device)" },
  "lengths": { value: "LIST", help: `tokens of prompts, separated by commas (${LENGTHS})` },
} as const satisfies Flags;
const PROGRAM = {
  name: "bench_lengths",
  about: "Measures prompts of lengths that a process has not met.",
  flags: FLAGS,
};

await runMain(PROGRAM, async ({ device = mx.defaultDevice(), lengths }) => {
  const counts = lengths === undefined ? LENGTHS : readCounts("lengths", lengths, 4);
  if (device === "wasm") throw new UsageError("the CPU reads a prompt of any length by itself: choose a GPU");
  const { model } = await mx.lm.load(await modelFolder("qwen3-0.6b"), { device });
  print("prompt    first ms   again ms   second token ms\n");
  for (const count of counts) {
    const [first, again] = [await times(model, count, 1), await times(model, count, TOKENS)];
    const cells = [first[0], again[0], again[1]].map((ms, i) => ms.toFixed(1).padStart([12, 11, 18][i]));
    print(`${String(count).padEnd(6)}${cells.join("")}\n`);
  }
  model[Symbol.dispose]();
  return 0;
});

/** Milliseconds to the first token, and from there to the second one. */
async function times(model: mx.lm.LanguageModel, length: number, tokens: number): Promise<readonly number[]> {
  using cache = model.makeCache();
  const prompt = promptOf(model, length);
  const start = performance.now();
  const [first, second = NaN] = await timeTokens(model, cache, prompt, tokens);
  return [first - start, second - first];
}
