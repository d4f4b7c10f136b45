/** Mistakes in the tables that GLSL, C and TypeScript share: shaders/*.zon and shaders/include. */

import type { Mutant } from "./mutant.ts";

const ELEMENTWISE_TESTS = [
  "tests/kernels/elementwise_test.ts",
  "tests/ops/tensor/array_test.ts",
  "tests/ops/ops_test.ts",
] as const;

export const TABLES = [
  {
    name: "signed integers are shifted right by a number of places modulo 32",
    file: "shaders/include/elementwise.h",
    find: "a >> (UINT(b) > 31u ? 31u : UINT(b))",
    replace: "a >> (UINT(b) & 31u)",
    tests: ELEMENTWISE_TESTS,
  },
  {
    name: "a maximum of floats loses NaN of its second operand",
    file: "shaders/include/elementwise.h",
    find: "F_S2(67, maximum, m_maximum(a, b))",
    replace: "F_S2(67, maximum, b > a ? b : a)",
    tests: ELEMENTWISE_TESTS,
  },
  {
    name: "int8 does not count as signed",
    file: "shaders/include/dtype.h",
    find: "#define DTYPE_IS_SIGNED(d) ((d) >= DTYPE_I8 &&",
    replace: "#define DTYPE_IS_SIGNED(d) ((d) > DTYPE_I8 &&",
    tests: [
      "tests/ops/tensor/dtype_test.ts",
      "tests/kernels/reduce_test.ts",
      "tests/ops/tensor/array_test.ts",
      "tests/ops/ops_test.ts",
    ],
  },
  {
    name: "a number halfway between two codes of four bits gets the larger one",
    file: "shaders/include/math/small_float.h",
    find: "UINT(size > 0.75f)",
    replace: "UINT(size >= 0.75f)",
    tests: ["tests/ops/quantized/quantize_small_float_test.ts", "tests/ops/quantized/quantize_test.ts"],
  },
  {
    name: "a layer norm must have a weight on a GPU",
    file: "shaders/kernels.zon",
    find: '.buffers = .{ "x:r", "weight:r?", "bias:r?", "out:w" },',
    replace: '.buffers = .{ "x:r", "weight:r", "bias:r?", "out:w" },',
    tests: [
      "tests/ops/tensor/array_test.ts",
      "tests/ops/fast_functions_test.ts",
      "tests/kernels/norm_rope_softmax_test.ts",
      "tests/nn/golden_test.ts",
    ],
  },
  {
    name: "no memory is there for the scores of a single or a last odd head",
    file: "shaders/states.zon",
    find: '.{ .name = "PAIRS", .value = "(HEADS + 1) / 2" }',
    replace: '.{ .name = "PAIRS", .value = "HEADS / 2" }',
    tests: [
      "tests/llm/models/exact_test.ts",
      "tests/llm/decode/chunk_decode_test.ts",
      "tests/llm/decode/fused_decode_test.ts",
    ],
  },
  {
    name: "the scale of what is added to a residual is a whole number",
    file: "shaders/include/push.h",
    find: "    float scale; // of the parts that are added\n",
    replace: "    uint scale; // of the parts that are added\n",
    tests: [
      "tests/kernels/prefill_test.ts",
      "tests/llm/models/families_test.ts",
      "tests/llm/prefill/fused_prefill_test.ts",
    ],
  },
] as const satisfies readonly Mutant[];
