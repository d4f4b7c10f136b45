/**
 * Writes golden/mlx_scores.json and golden/mlx_prompt_cache.safetensors anew (mlx_scores.py; needs Python with mlx and mlx-lm).
 *
 *     deno run -A tests/reference/scores.ts [PYTHON]
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { CACHE, CASES, scoreModel, SCORES, textIds } from "../support/scores.ts";

const [python = "python3"] = Deno.args;
const script = fileURLToPath(new URL("mlx_scores.py", import.meta.url));
using model = await scoreModel();
const cases = `${model.dir}/cases.json`;
await Deno.writeTextFile(cases, JSON.stringify({ ...CASES, texts: await textIds() }));
const args = [script, model.dir, cases, fileURLToPath(CACHE), fileURLToPath(SCORES)];
const { code } = await new Deno.Command(python, { args }).spawn().status;
Deno.exitCode = code;
