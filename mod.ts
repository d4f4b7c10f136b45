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
 * @example A language model: `lm.EMBEDDED_MODEL` is part of the package, a name such as "Qwen/Qwen3-0.6B-MLX-4bit" is downloaded once
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
 * await mx.lm.print(mx.lm.streamGenerate(model, tokenizer, "Once upon a time", { maxTokens: 20 }));
 * ```
 *
 * @module
 */

export * from "./src/array/mod.ts";
export * as nn from "./src/nn/mod.ts";
export * as lm from "./src/lm.ts";
export * as plot from "./src/plot/mod.ts";
export { progress, type ProgressBar, type ProgressUnit } from "./src/notebook/progress.ts";
