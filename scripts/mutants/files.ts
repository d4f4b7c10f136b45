/** Mistakes in files and downloads: src/array/files, src/llm/hub and prompt caches. */

import type { Mutant } from "./mutant.ts";

export const FILES = [
  {
    name: "a download appends to the partial file if the server sends all of the file",
    file: "src/llm/hub/download.ts",
    find: "if (answer === undefined || (answer.status === 200 && partial.size > 0)) {",
    replace: "if (answer === undefined) {",
    tests: ["tests/llm/checkpoint/hub_cache_test.ts", "tests/llm/checkpoint/hub_test.ts"],
  },
  {
    name: "seconds that a server asks to wait are taken for milliseconds",
    file: "src/llm/hub/retry.ts",
    find: "return Number(header) * 1000;",
    replace: "return Number(header);",
    tests: ["tests/llm/checkpoint/hub_cache_test.ts", "tests/llm/checkpoint/hub_test.ts"],
  },
  {
    name: "a star in a pattern takes files of other folders",
    file: "src/llm/hub/patterns.ts",
    find: 'part === "*" ? "[^/]*" : ".*"',
    replace: '".*"',
    tests: ["tests/llm/checkpoint/hub_cache_test.ts", "tests/llm/checkpoint/hub_test.ts"],
  },
  {
    name: "a prompt cache of another number of heads is read",
    file: "src/llm/generation/stored_prompt_cache.ts",
    find: "shape[1] === heads && ",
    replace: "",
    tests: ["tests/cli/prompt_cache_test.ts", "tests/llm/kv/prompt_cache_test.ts"],
  },
  {
    name: "a quote that is escaped ends a string",
    file: "src/array/files/json_reader.ts",
    find: "        escaped = true;\n        length++;\n",
    replace: "        escaped = true;\n",
    tests: [
      "tests/ops/files/io_test.ts",
      "tests/llm/checkpoint/shards_test.ts",
      "tests/llm/checkpoint/model_files_test.ts",
    ],
  },
  {
    name: "the header of a .npy file leaves its values at no multiple of 64 bytes",
    file: "src/array/files/npy.ts",
    find: "Math.ceil((before + text.length + 1) / 64) * 64 - before",
    replace: "Math.ceil((before + text.length + 1) / 64) * 64",
    tests: ["tests/ops/files/array_files_test.ts", "tests/ops/files/io_test.ts"],
  },
  {
    name: "scales of Q6_K weights are read without their signs",
    file: "src/array/files/gguf_blocks.ts",
    find: "wide(view(contiguous(field(blocks, 192, 16)), dt.int8))",
    replace: "wide(field(blocks, 192, 16))",
    tests: ["tests/ops/files/gguf_blocks_test.ts"],
  },
] as const satisfies readonly Mutant[];
