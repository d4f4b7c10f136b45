/**
 * `deno task bench`: `vkmx bench` on synthetic models, which are made once and kept in .tools/models.
 *
 *     deno task bench                                   a synthetic Qwen3-0.6B on WASM and every GPU
 *     deno task bench --device wasm --profile           with the time of every kernel
 *     deno task bench --model DIR --prompt 512 --json
 *
 * @module
 */

import { bench, BENCH_FLAGS } from "../../src/cli/bench/bench.ts";
import { checkOneOf, type Flags, UsageError } from "../../src/cli/flags.ts";
import { runMain } from "../../src/cli/program.ts";
import { SHAPES } from "../synthetic/synthetic.ts";
import { modelFolder } from "./compare.ts";

const FLAGS = {
  ...BENCH_FLAGS,
  "model": { value: "DIR", help: "model directory, or a name of the Hugging Face Hub" },
  "shape": { value: "NAME", help: `synthetic model instead: ${Object.keys(SHAPES).join(", ")} (qwen3-0.6b)` },
} as const satisfies Flags;

const PROGRAM = { name: "bench", about: "Measures a model on each device.", flags: FLAGS };

await runMain(PROGRAM, async (values) => {
  const { model, shape = "qwen3-0.6b" } = values;
  if (model !== undefined && values.shape !== undefined) throw new UsageError("--model and --shape exclude each other");
  return await bench(values, model ?? await modelFolder(checkOneOf("--shape", shape, Object.keys(SHAPES))));
});
