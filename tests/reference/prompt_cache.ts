/**
 * Writes golden/models/mlx_prompt_cache.safetensors and .json anew, or reads a cache that vkmx saved (mlx_prompt_cache.py; needs Python with mlx
 * and mlx-lm).
 *
 *     deno run -A tests/reference/prompt_cache.ts [PYTHON]
 *     deno run -A tests/reference/prompt_cache.ts PYTHON --check     saves one here and has mlx-lm go on from it
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import * as mx from "../../mod.ts";
import { CACHE, LOGITS, NEXT, PROMPT, smallModel } from "../support/models/prompt_caches.ts";

const [python = "python3", mode] = Deno.args;
const script = fileURLToPath(new URL("mlx_prompt_cache.py", import.meta.url));
using files = await smallModel();
const run = async (...args: string[]): Promise<void> => {
  const { code } = await new Deno.Command(python, { args: [script, files.dir, ...args] }).spawn().status;
  Deno.exitCode ||= code;
};
if (mode === "--check") {
  const { model, tokenizer } = await mx.lm.load(files.dir, { device: "cpu" });
  using _model = model;
  using cache = model.makeCache();
  await mx.lm.generate(model, tokenizer, PROMPT, { cache, maxTokens: 1 });
  const file = `${files.dir}/cache.safetensors`;
  await mx.lm.savePromptCache(file, cache, { metadata: { model: "synthetic", tokenizer_config: "{}" } });
  await run("check", String(NEXT), file, fileURLToPath(LOGITS));
} else {
  await run(PROMPT.join(), String(NEXT), fileURLToPath(CACHE), fileURLToPath(LOGITS));
}
