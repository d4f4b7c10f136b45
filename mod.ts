/**
 * Arrays as in MLX and language models on any Vulkan GPU, and the same program on the CPU through WebAssembly.
 *
 * Arrays are lazy: functions note what is to be computed, and reading a value (or `mx.eval`) computes it. Names, argument
 * orders, dtypes and results are MLX's, in camelCase.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const a = mx.array([[1, 2], [3, 4]]);
 * const b = mx.softmax(mx.matmul(a, a.T), -1);
 * console.log(b.shape, b.tolist());
 * ```
 *
 * @module
 */

export * from "./src/array/mod.ts";
export * as lm from "./src/llm/mod.ts";
export * as plot from "./src/plot/mod.ts";
export { progress, type ProgressBar, type ProgressUnit } from "./src/notebook/progress.ts";
