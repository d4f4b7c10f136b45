/** Mistakes in the command line: src/cli. */

import type { Mutant } from "./mutant.ts";

export const CLI = [
  {
    name: 'words behind "--" are read as flags',
    file: "src/cli/flags.ts",
    find: "args.slice(0, end < 0 ? args.length : end)",
    replace: "args",
    tests: ["tests/cli/flags_test.ts", "tests/cli/table_test.ts"],
  },
  {
    name: "an empty number is 0",
    file: "src/cli/flags.ts",
    find: 'const value = text.trim() === "" ? NaN : Number(text);',
    replace: "const value = Number(text);",
    tests: ["tests/cli/flags_test.ts", "tests/cli/train_table_test.ts"],
  },
  {
    name: "--temp 0 gives way to the temperature of the model",
    file: "src/cli/model_flags.ts",
    find: "temp: values.temp ?? wishes.temperature ?? 0,",
    replace: "temp: values.temp || wishes.temperature || 0,",
    tests: ["tests/cli/chat_table_test.ts", "tests/cli/chat_test.ts", "tests/cli/generate_test.ts"],
  },
  {
    name: "an answer that Ctrl-C stopped ends with exit code 0",
    file: "src/cli/generation.ts",
    find: 'return last.finishReason === "abort" ? 130 : 0;',
    replace: "return 0;",
    tests: ["tests/cli/generate_test.ts"],
  },
  {
    name: "training begins with another learning rate",
    file: "src/cli/training.ts",
    find: 'learningRate: values["learning-rate"] ?? 1e-5,',
    replace: 'learningRate: values["learning-rate"] ?? 1e-4,',
    tests: ["tests/cli/train_table_test.ts", "tests/training/finetune_test.ts"],
  },
  {
    name: "a cache that does not tell its tokens is searched for the prompt",
    file: "src/cli/prompt_cache.ts",
    find: "this.options = cache ? { cache, cachePrompt: this.#knowsTokens } : sizesOf(values);",
    replace: "this.options = cache ? { cache, cachePrompt: true } : sizesOf(values);",
    tests: ["tests/cli/prompt_cache_test.ts", "tests/cli/generate_test.ts"],
  },
] as const satisfies readonly Mutant[];
