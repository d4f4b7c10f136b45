/**
 * Writes golden/models/prompt_caches anew, or has mlx-lm go on from caches that vkmx saved
 * (mlx_prompt_cache.py; needs Python with mlx and mlx-lm).
 *
 *     deno run -A tests/reference/prompt_cache.ts [PYTHON]
 *     deno run -A tests/reference/prompt_cache.ts PYTHON --check     saves each here; mlx-lm must choose the golden tokens after it
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import * as mx from "../../mod.ts";
import {
  CACHE_CASES,
  CACHE_GOLDEN,
  type CacheCase,
  cacheFile,
  type CacheGolden,
  NEXT,
  PROMPT,
  smallModel,
} from "../support/models/prompt_caches.ts";

const [python = "python3", mode] = Deno.args;
const script = fileURLToPath(new URL("mlx_prompt_cache.py", import.meta.url));
const COUNT = 8;

/** Runs the script; what it printed. */
async function run(dir: string, verb: "read" | "write", file: string, one: CacheCase): Promise<CacheGolden> {
  const text = JSON.stringify({ ids: PROMPT, next: NEXT, count: COUNT, ...one });
  const { success, stdout } = await new Deno.Command(python, {
    args: [script, dir, verb, file, text],
    stderr: "inherit",
  })
    .output();
  if (!success) Deno.exit(1);
  return JSON.parse(new TextDecoder().decode(stdout));
}

const golden: Record<string, CacheGolden> = mode === "--check" ? JSON.parse(Deno.readTextFileSync(CACHE_GOLDEN)) : {};
for (const one of CACHE_CASES as readonly CacheCase[]) {
  using files = await smallModel(one.shape);
  if (mode !== "--check") {
    const { logits, tokens } = await run(files.dir, "write", cacheFile(one.name), one);
    golden[one.name] = { logits, tokens };
    continue;
  }
  const { model } = await mx.lm.load(files.dir, { device: "cpu" });
  using _model = model;
  using cache = model.makeCache(one.size === undefined ? {} : { maxKvSize: one.size });
  mx.tidy(() => mx.eval(model.forward(mx.array([[...PROMPT, ...one.steps]], mx.int32), cache)));
  const file = `${files.dir}/cache.safetensors`;
  const metadata = { model: "synthetic", tokenizer_config: "{}" };
  await mx.lm.savePromptCache(file, cache, { metadata, ...(one.bits && { kvBits: one.bits, kvGroupSize: one.group }) });
  const found = await run(files.dir, "read", file, one);
  const expected = golden[one.name];
  const error = Math.hypot(...found.logits.map((x, i) => x - expected.logits[i])) / Math.hypot(...expected.logits);
  const same = found.tokens.join() === expected.tokens.join();
  console.log(
    one.name,
    JSON.stringify(found),
    `relative error ${error.toPrecision(2)}, ${same ? "equal" : "OTHER"} tokens`,
  );
  if (!same || error > 0.02) Deno.exitCode = 1;
}
if (mode !== "--check") Deno.writeTextFileSync(CACHE_GOLDEN, JSON.stringify(golden) + "\n");
