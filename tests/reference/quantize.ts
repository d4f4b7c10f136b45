/**
 * Writes tests/golden/quantize.json, the SHA-256 of what MLX makes of the rows of support/quantize_rows.ts. Needs a Python with mlx and
 * numpy:
 *
 *     deno run -A tests/reference/quantize.ts [PYTHON]
 */

import { COLUMNS, edgeRows } from "../support/quantize_rows.ts";

const [python = "python3"] = Deno.args;
const script = new URL("quantize.py", import.meta.url).pathname;
const rows = await Deno.makeTempFile();
try {
  await Deno.writeFile(rows, new Uint8Array(edgeRows().buffer));
  const { success, stdout } = await new Deno.Command(python, { args: [script, rows, String(COLUMNS)] }).output();
  if (!success) throw new Error("quantize.py failed");
  await Deno.writeFile(new URL("../golden/quantize.json", import.meta.url), stdout);
} finally {
  await Deno.remove(rows);
}
