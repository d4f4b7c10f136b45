/** Mistakes in the shaders: shaders/. */

import type { Mutant } from "./mutant.ts";

export const GLSL = [
  {
    name: "lines of a reduction of columns are folded before all are there",
    file: "shaders/ops/reduce/reduce_columns.comp",
    find: "op4(folded[2], folded[3]));\n    barrier();",
    replace: "op4(folded[2], folded[3]));",
    tests: ["tests/kernels/reduce_test.ts", "tests/ops/tensor/array_test.ts", "tests/ops/ops_test.ts"],
  },
  {
    name: "every row of a batch attends to as many keys as the first",
    file: "shaders/ops/attention/attention.comp",
    find: "HAS_LENGTHS == 2 ? batch : 0",
    replace: "0",
    tests: [
      "tests/ops/indexing/per_row_args_test.ts",
      "tests/kernels/attention_test.ts",
      "tests/llm/generation/batch_generate_test.ts",
    ],
  },
  {
    name: "turned matrices of 8-byte elements get their low halves twice",
    file: "shaders/ops/elementwise/copy_transposed.comp",
    find: "if (WORDS == 2) x.y = tile[(TILE + column) * (TILE + 1u) + row];",
    replace: "if (WORDS == 2) x.y = tile[column * (TILE + 1u) + row];",
    tests: ["tests/ops/tensor/views_test.ts", "tests/kernels/movement_test.ts", "tests/ops/elementwise_wide_test.ts"],
  },
  {
    name: "codes of three bits that lie in two words are read from one",
    file: "shaders/ops/quantized/quantized.glsl",
    find: "if (bit % 32u + 8u * BITS <= 32u)",
    replace: "if (8u * BITS <= 32u)",
    tests: [
      "tests/ops/quantized/quantize_test.ts",
      "tests/ops/quantized/quantized_products_test.ts",
      "tests/ops/quantized/quantized_tolerance_test.ts",
      "tests/kernels/quantized_test.ts",
    ],
  },
  {
    name: "the high bits of a code that ends in the next word are lost",
    file: "shaders/ops/quantized/quantize.comp",
    find: "bits = used == 0u ? 0u : code >> (BITS - used);",
    replace: "bits = 0u;",
    tests: ["tests/ops/quantized/quantize_test.ts", "tests/kernels/quantized_test.ts"],
  },
  {
    name: "top-p leaves out the token that passes its boundary",
    file: "shaders/sampling/select.glsl",
    find: "r.above <= b.mass_target",
    replace: "r.above + pack64(near_entries[thread()].zw) <= b.mass_target",
    tests: ["tests/llm/generation/sampler_test.ts", "tests/kernels/sampling_test.ts"],
  },
  {
    name: "fused attention of decoding leaves out the newest token",
    file: "shaders/decode/attention.glsl",
    find: "if (ROUNDS == 1u && p > now) break;",
    replace: "if (ROUNDS == 1u && p >= now) break;",
    tests: ["tests/llm/models/exact_test.ts", "tests/llm/decode/fused_decode_test.ts"],
  },
  {
    name: "a drawn token is noted one place too late for penalties",
    file: "shaders/decode/draw.comp",
    find: "row * RECENT_SIZE + next % RECENT_SIZE",
    replace: "row * RECENT_SIZE + (next + 1u) % RECENT_SIZE",
    tests: [
      "tests/kernels/sampling_test.ts",
      "tests/llm/generation/generate_test.ts",
      "tests/llm/decode/fused_decode_test.ts",
    ],
  },
  {
    name: "features of a head in pages lie in one block",
    file: "shaders/ops/attention/append_pages.comp",
    find: "uint block = unit / pc.p.block, blocks = pc.p.units / pc.p.block;",
    replace: "uint block = 0, blocks = pc.p.units / pc.p.block;",
    tests: ["tests/llm/kv/pages_test.ts"],
  },
  {
    name: "codes of the second two features of four are read from the first two",
    file: "shaders/include/kv_codes.glsl",
    find: "kv_pair((word >> 14 & 0x7fu) | (word >> 5 & 0x7f0000u), exponent)",
    replace: "kv_pair((word & 0x7fu) | (word << 9 & 0x7f0000u), exponent)",
    tests: ["tests/llm/decode/coded_pages_test.ts"],
  },
] as const satisfies readonly Mutant[];
