/** docs/parity.md is what `deno task parity` writes; its full table has each function of MLX, where it runs or why it does not. */

import { assert, assertEquals } from "@std/assert";
import { fullTable, nameOf, PAGE, parityPage, parityRows } from "../scripts/parity.ts";

const ROOT = new URL("..", import.meta.url);
const LIST = Deno.readTextFileSync(new URL("tests/golden/mlx_names.txt", ROOT));

Deno.test("docs/parity.md is up to date: `deno task parity` writes it", async () => {
  assertEquals(await Deno.readTextFile(new URL(PAGE, ROOT)), parityPage(LIST));
});

Deno.test("every function of MLX is marked or has a reason", () => {
  const rows = parityRows(LIST);
  assert(rows.length > 370);
  assertEquals(rows.filter((row) => !row.tested && row.note === "").map((row) => row.mlx), []);
  const of = (mlx: string) => rows.find((row) => row.mlx === mlx)!;
  assert(of("add").tested && of("fast.rope").tested && of("random.normal").tested);
  assert(of("load").there && !of("load").tested && of("load").note.includes("io_test.ts"));
  assert(!of("fast.metal_kernel").there && of("fast.metal_kernel").note.includes("vulkanKernel"));
});

Deno.test("the full table has every function, the page only the exceptions", () => {
  const full = fullTable(LIST);
  const page = parityPage(LIST).split("## MLX's own tests")[0];
  const rows = parityRows(LIST);
  const first = Array.from(full.matchAll(/^\| `([\w.]+)` /gm), ([, name]) => name);
  assertEquals(first.toSorted(), rows.map(({ mlx }) => mlx).toSorted());
  const listed = (name: string): boolean => page.includes(`\`${name}\``);
  assertEquals(rows.filter(({ mlx, there }) => !there && !listed(mlx)), []);
  for (const name of ["load", "linalg.svd", "fast.crossEntropy", "Tensor.item"]) assert(listed(name), name);
  for (const name of ["add", "Tensor.abs", "linalg.norm", "fast.rope"]) assert(!listed(name), name);
});

Deno.test("names of MLX become camelCase", () => {
  assertEquals(
    ["conv_transpose1d", "atleast_2d", "fast.layer_norm", "array.log1p", "array.mT", "as_strided"].map(nameOf),
    ["convTranspose1d", "atleast2d", "fast.layerNorm", "Tensor.log1p", "Tensor.mT", "asStrided"],
  );
});
