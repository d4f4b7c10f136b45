/**
 * Measures the cost of a response format: `deno run -A --no-lock scripts/bench/structured.ts`.
 *
 * Decodes Qwen3-0.6B's shape with and without a schema in turns, and prints the median speeds and their ratio.
 *
 * @module
 */

import type { Flags } from "../../src/cli/flags.ts";
import { print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { median } from "../../src/cli/bench/figures.ts";
import { promptOf } from "../../src/cli/bench/tokens.ts";
import { modelFolder } from "./compare.ts";

const FLAGS = {
  "device": { value: "NAME", help: "device to measure (the default device)" },
  "shape": { value: "NAME", help: "shape of the model (qwen3-0.6b)" },
  "tokens": { value: "N", help: "tokens of an answer (256)", range: [2, 4096], whole: true },
  "rounds": { value: "N", help: "answers of each kind (5)", range: [1, 1000], whole: true },
  "temp": { value: "T", help: "temperature (0)", range: [0, 100] },
} as const satisfies Flags;
const PROGRAM = { name: "bench_structured", about: "Measures what a response format costs.", flags: FLAGS };

/** JSON that goes on for as long as it is let. */
const PERSON = {
  type: "object",
  properties: {
    name: { type: "string" },
    age: { type: "integer" },
    kind: { enum: ["cat", "dog"] },
    tags: { type: "array", items: { type: "string" } },
  },
  required: ["name", "age", "kind", "tags"],
};
const FORMATS: Readonly<Record<string, mx.lm.ResponseFormat>> = {
  free: { type: "text" },
  schema: { type: "json_schema", schema: { type: "array", items: PERSON, minItems: 1000 } },
};

await runMain(
  PROGRAM,
  async ({ device = mx.defaultDevice(), shape = "qwen3-0.6b", tokens = 256, rounds = 5, temp = 0 }) => {
    const { model, tokenizer } = await mx.lm.load(await modelFolder(shape), { device });
    const speeds: Record<string, number[]> = { free: [], schema: [] };
    for (let round = -1; round < rounds; round++) { // the first one compiles
      for (const [name, responseFormat] of Object.entries(FORMATS)) {
        const options = { maxTokens: tokens, responseFormat, temp, seed: 1, enableThinking: false };
        let last: mx.lm.GenerationResponse | undefined;
        for await (const r of mx.lm.streamGenerate(model, tokenizer, promptOf(model, 32), options)) last = r;
        if (round >= 0) speeds[name].push(last!.generationTps);
        if (last!.generationTokens < tokens) print(`${name} ended after ${last!.generationTokens} tokens\n`);
      }
      await model.traces.idle();
    }
    const [free, schema] = [median(speeds.free)!, median(speeds.schema)!];
    const unit = "tokens a second";
    print(
      `${device}: free ${free.toFixed(1)}, schema ${schema.toFixed(1)} ${unit}, ratio ${(schema / free).toFixed(3)}\n`,
    );
    model[Symbol.dispose]();
    return 0;
  },
);
