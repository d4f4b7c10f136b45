/** Mistakes in the rules of arrays, their shapes, dtypes and indices: src/array and src/graph. */

import type { Mutant } from "./mutant.ts";

export const ARRAYS = [
  {
    name: "negative indices of several index arrays are not counted from the end",
    file: "src/array/ops/indexing.ts",
    find: "const positive = arrays.length === 1 ? one : binary.where(binary.less(one, 0), binary.add(one, size), one);",
    replace: "const positive = one;",
    tests: [
      "tests/ops/indexing/wide_indexing_test.ts",
      "tests/ops/tensor/array_test.ts",
      "tests/ops/mlx_cases_test.ts",
    ],
  },
  {
    name: "a slice backwards ends before the first element",
    file: "src/array/ops/indexing.ts",
    find: "step > 0 ? [0, size] : [-1, size - 1]",
    replace: "step > 0 ? [0, size] : [0, size - 1]",
    tests: [
      "tests/ops/indexing/wide_indexing_test.ts",
      "tests/ops/tensor/array_test.ts",
      "tests/ops/mlx_cases_test.ts",
    ],
  },
  {
    name: "a view whose elements share addresses may be written in place",
    file: "src/graph/shape.ts",
    find: "if (by <= reach) return true;",
    replace: "if (by < reach) return true;",
    tests: ["tests/ops/tensor/views_test.ts", "tests/ops/tensor/in_place_test.ts", "tests/ops/tensor/array_test.ts"],
  },
  {
    name: "a signed and an unsigned type of one size meet in the signed one",
    file: "src/graph/dtype.ts",
    find: "if (signed.bytes > unsigned.bytes) return signed;",
    replace: "if (signed.bytes >= unsigned.bytes) return signed;",
    tests: ["tests/ops/tensor/dtype_test.ts", "tests/ops/tensor/array_test.ts", "tests/ops/mlx_cases_test.ts"],
  },
  {
    name: "numbers of the host are rounded to bfloat16 with halves away from zero",
    file: "src/graph/dtype.ts",
    find: "((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff",
    replace: "((bits + 0x8000) >>> 16) & 0xffff",
    tests: ["tests/ops/tensor/dtype_test.ts", "tests/ops/tensor/array_test.ts", "tests/kernels/elementwise_test.ts"],
  },
  {
    name: "the code of -0 in eight bits has no sign",
    file: "src/array/ops/fp8.ts",
    find: "const negative = less(where(less(size, 1), divide(1, a), a), 0);",
    replace: "const negative = less(a, 0);",
    tests: ["tests/ops/quantized/fp8_test.ts", "tests/ops/ops_test.ts"],
  },
  {
    name: "means of 16-bit floats are summed in 16 bits",
    file: "src/array/ops/reduce.ts",
    find: 'wrap(reduceNode("sum", node, axes, keepdims, accumulatorOf(node.dtype)))',
    replace: 'wrap(reduceNode("sum", node, axes, keepdims, node.dtype))',
    tests: ["tests/ops/tensor/array_test.ts", "tests/ops/mlx_cases_test.ts", "tests/ops/ops_test.ts"],
  },
] as const satisfies readonly Mutant[];
