/**
 * Writes tests/golden/models/conversions.json, the SHA-256 of what `mlx_lm.convert` makes of the models of
 * support/models/conversions.ts. Also writes tests/golden/models/tensor_order.json, that of names in the order in which
 * MLX writes tensors. Needs a Python with mlx and mlx-lm 0.32 on x86_64 or aarch64 Linux, whose C++ library decides the
 * order of tensors in a file:
 *
 *     deno run -A tests/reference/convert.ts [PYTHON]
 */

import { writeModel } from "../../scripts/synthetic/synthetic.ts";
import { CONVERSIONS, type GoldenConversion, ORDERED_NAMES, sumsOf } from "../support/models/conversions.ts";

const [python = "python3"] = Deno.args;
const script = new URL("convert.py", import.meta.url).pathname;
const folder = await Deno.makeTempDir();
try {
  const jobs = [];
  for (const [i, { shape, format, first }] of CONVERSIONS.entries()) {
    await writeModel(`${folder}/${i}`, shape, format);
    if (first) jobs.push([`${folder}/${i}`, `${folder}/${i}.first`, first]);
  }
  const before = jobs.length;
  for (const [i, { first, asked }] of CONVERSIONS.entries()) {
    jobs.push([`${folder}/${i}${first ? ".first" : ""}`, `${folder}/${i}.out`, asked]);
  }
  const child = new Deno.Command(python, { args: [script], stdin: "piped", stdout: "piped" }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(JSON.stringify({ jobs, names: ORDERED_NAMES })));
  await writer.close();
  const { success, stdout } = await child.output();
  if (!success) throw new Error("convert.py failed");
  const { bits, order }: { bits: (string | null)[]; order: unknown } = JSON.parse(new TextDecoder().decode(stdout));
  const golden: Record<string, GoldenConversion> = Object.fromEntries(CONVERSIONS.map(({ name }, i) => {
    const files = sumsOf(`${folder}/${i}.out`);
    const width = bits[before + i];
    return [name, { files, ...(width !== null && { bits: width }) }];
  }));
  const text = `${JSON.stringify(golden, null, 1)}\n`;
  await Deno.writeTextFile(new URL("../golden/models/conversions.json", import.meta.url), text);
  const orders = `${JSON.stringify({ order }, null, 1)}\n`;
  await Deno.writeTextFile(new URL("../golden/models/tensor_order.json", import.meta.url), orders);
} finally {
  await Deno.remove(folder, { recursive: true });
}
