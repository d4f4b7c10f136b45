/**
 * Writes tests/golden/arrays/quantize.json and quantize_small_float.json, the SHA-256 of what MLX makes of the rows of support/oracles/quantize_rows.ts.
 * Needs a Python with mlx and numpy:
 *
 *     deno run -A tests/reference/quantize.ts [PYTHON]
 */

import { COLUMNS, edgeRows, farRows, smallFloatRows } from "../support/oracles/quantize_rows.ts";

const [python = "python3"] = Deno.args;

/** Runs a script of this folder and keeps what it prints. */
async function write(name: string, args: readonly string[]): Promise<void> {
  const script = new URL(`${name}.py`, import.meta.url).pathname;
  const { success, stdout } = await new Deno.Command(python, { args: [script, ...args] }).output();
  if (!success) throw new Error(`${name}.py failed`);
  await Deno.writeFile(new URL(`../golden/arrays/${name}.json`, import.meta.url), stdout);
}

const folder = await Deno.makeTempDir();
try {
  const files = { edge: edgeRows(), small: smallFloatRows(), far: farRows() };
  for (const [name, rows] of Object.entries(files)) {
    await Deno.writeFile(`${folder}/${name}`, new Uint8Array(rows.buffer));
  }
  await write("quantize", [`${folder}/edge`, String(COLUMNS)]);
  await write("quantize_small_float", [String(COLUMNS), `small=${folder}/small`, `far=${folder}/far`]);
} finally {
  await Deno.remove(folder, { recursive: true });
}
