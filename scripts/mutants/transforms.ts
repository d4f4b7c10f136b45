/** Mistakes in derivatives and batches: src/array/transforms. */

import type { Mutant } from "./mutant.ts";

const TESTS = ["tests/transforms/mlx_derivatives_test.ts", "tests/transforms/transforms_test.ts"] as const;

export const TRANSFORMS = [
  {
    name: "the derivative of erf lacks a factor of 2",
    file: "src/array/transforms/elementwise_rules.ts",
    find: "2 / Math.sqrt(Math.PI)",
    replace: "1 / Math.sqrt(Math.PI)",
    tests: TESTS,
  },
  {
    name: "each of equal extremes gets all of the gradient",
    file: "src/array/transforms/reduce_rules.ts",
    find: "return divide(found, sum(found, axes, true)) as AnyTensor;",
    replace: "return found;",
    tests: TESTS,
  },
  {
    name: "a batch of vectors is broadcast along the axes of the result from the left",
    file: "src/array/transforms/elementwise_rules.ts",
    find: "[node.shape[0], ...new Array(rank - own).fill(1), ...node.shape.slice(1)]",
    replace: "[node.shape[0], ...node.shape.slice(1), ...new Array(rank - own).fill(1)]",
    tests: TESTS,
  },
  {
    name: "the gradient of every second element goes to neighbours",
    file: "src/array/transforms/movement_rules.ts",
    find: "return [placed(c, entry.inputs[0].shape, starts, steps)];",
    replace: "return [placed(c, entry.inputs[0].shape, starts, ones(starts))];",
    tests: TESTS,
  },
  {
    name: "the gradient of an exclusive running sum includes the element itself",
    file: "src/array/transforms/reduce_rules.ts",
    find: 'return [scanOf(c, "sum", !reverse, exclusive)];',
    replace: 'return [scanOf(c, "sum", !reverse)];',
    tests: TESTS,
  },
  {
    name: "the middle of a spectrum of even size counts twice in the gradient",
    file: "src/array/transforms/reduce_rules.ts",
    find: "const single = n % 2 === 0 ? [0, n / 2] : [0];",
    replace: "const single = [0];",
    tests: ["tests/ops/signal/fft_test.ts", ...TESTS],
  },
  {
    name: "the gradient of a dilated convolution is padded as of one that is not",
    file: "src/array/transforms/product_rules.ts",
    find: "attrs.kernelDilation[i] * (w.shape[i + 1] - 1) - attrs.paddingLow[i]);",
    replace: "w.shape[i + 1] - 1 - attrs.paddingLow[i]);",
    tests: ["tests/ops/signal/convolutions_test.ts", ...TESTS],
  },
] as const satisfies readonly Mutant[];
