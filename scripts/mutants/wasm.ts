/** Mistakes in the kernels of the CPU: runtime-c/wasm. */

import type { Mutant } from "./mutant.ts";

export const WASM = [
  {
    name: "the largest element is not found at the end of a row",
    file: "runtime-c/wasm/reduce.c",
    find: "for (; i < n; i++) best = m_maximum(best, run[i] * sign);",
    replace: "for (; i + 1 < n; i++) best = m_maximum(best, run[i] * sign);",
    tests: ["tests/ops/tensor/array_test.ts", "tests/kernels/reduce_test.ts", "tests/ops/ops_test.ts"],
  },
  {
    name: "NaN in every fourth place does not win a maximum",
    file: "runtime-c/wasm/reduce.c",
    find: "return (nan[0] | nan[1] | nan[2] | nan[3]) ?",
    replace: "return (nan[0] | nan[1] | nan[2]) ?",
    tests: ["tests/kernels/reduce_test.ts", "tests/ops/ops_test.ts"],
  },
  {
    name: "groups of quantized weights are counted from the block of the depth on",
    file: "runtime-c/wasm/quantized/quantized.h",
    find: "load_group(q, groups + (first + i) / q->group, &scale, &bias);",
    replace: "load_group(q, groups + i / q->group, &scale, &bias);",
    tests: [
      "tests/ops/quantized/quantized_products_test.ts",
      "tests/ops/quantized/quantized_tolerance_test.ts",
      "tests/kernels/quantized_test.ts",
    ],
  },
  {
    name: "the factors of few rows of activations are placed as if there were four",
    file: "runtime-c/wasm/quantized/packed_words.h",
    find: "steps += rows, sums += rows",
    replace: "steps += 4, sums += 4",
    tests: ["tests/ops/quantized/packed_weights_test.ts"],
  },
  {
    name: "float16 is rounded with halves away from zero",
    file: "runtime-c/wasm/simd.h",
    find: "(u + 0x0fffu + ((u >> 13) & 1u) - 0x38000000u) >> 13",
    replace: "(u + 0x1000u - 0x38000000u) >> 13",
    tests: ["tests/ops/tensor/array_test.ts", "tests/kernels/elementwise_test.ts", "tests/ops/ops_test.ts"],
  },
  {
    name: "the last query of a causal block does not see the last key",
    file: "runtime-c/wasm/attention/attention.c",
    find: "(int64_t)last_query + b->length - p->q_len + 1;",
    replace: "(int64_t)last_query + b->length - p->q_len;",
    tests: ["tests/ops/tensor/array_test.ts", "tests/kernels/attention_test.ts", "tests/llm/prefill/prefill_test.ts"],
  },
  {
    name: "the smaller of two short signed integers is found as of unsigned ones",
    file: "runtime-c/wasm/indexing/scatter.c",
    find: "if (DTYPE_IS_SIGNED(dtype) && op == OP_MIN)",
    replace: "if (dtype == DTYPE_I32 && op == OP_MIN)",
    tests: ["tests/ops/tensor/array_test.ts", "tests/kernels/movement_test.ts", "tests/ops/ops_test.ts"],
  },
  {
    name: "long rows are sorted without their highest bits",
    file: "runtime-c/wasm/indexing/radix_sort.c",
    find: "uint32_t passes = (key_bits + bits - 1) / bits,",
    replace: "uint32_t passes = key_bits / bits,",
    tests: ["tests/kernels/sampling_test.ts"],
  },
  {
    name: "positions after the last page of a table are written to the next table's page",
    file: "runtime-c/wasm/attention/append_pages.c",
    find: "if (position < 0 || position / size >= p->columns) continue;",
    replace: "if (position < 0 || position / size > p->columns) continue;",
    tests: ["tests/llm/kv/pages_test.ts"],
  },
  {
    name: "a feature of 63.5 steps gets a code that there is not",
    file: "runtime-c/wasm/attention/kv_codes.h",
    find: "(int32_t)((most + 0x20000u) >> 23) - 122",
    replace: "(int32_t)(most >> 23) - 122",
    tests: ["tests/llm/kv/kv_codes_test.ts"],
  },
] as const satisfies readonly Mutant[];
