/** Mistakes in generation and decoding: src/llm. */

import type { Mutant } from "./mutant.ts";

export const GENERATION = [
  {
    name: "a ring shows the first positions before its last ones end",
    file: "src/llm/kv/ring.ts",
    find: "mx.lessEqual(first, before)",
    replace: "mx.lessEqual(first, positions)",
    tests: ["tests/llm/kv/cache_pages_test.ts", "tests/llm/kv/prompt_cache_test.ts"],
  },
  {
    name: "penalties look at the oldest tokens of a cache and a prompt",
    file: "src/llm/decode/session.ts",
    find: "...prompt.slice(-seen)].slice(-seen);",
    replace: "...prompt.slice(-seen)].slice(0, seen);",
    tests: [
      "tests/llm/generation/sampler_test.ts",
      "tests/llm/kv/prompt_cache_test.ts",
      "tests/llm/generation/generate_test.ts",
    ],
  },
  {
    name: "penalties lose the newest token of a prompt, not the oldest",
    file: "src/llm/decode/state.ts",
    find: "slots[(((last - back) % size) + size) % size]",
    replace: "slots[(((last - back + 1) % size) + size) % size]",
    tests: [
      "tests/llm/generation/sampler_test.ts",
      "tests/llm/prefill/prefill_test.ts",
      "tests/llm/generation/generate_test.ts",
    ],
  },
  {
    name: "tokens of a second sequence are read from the log of the first where the log turns",
    file: "src/llm/decode/state.ts",
    find: "tokens.set(readMapped(log, row * LOG, count - until), until);",
    replace: "tokens.set(readMapped(log, 0, count - until), until);",
    tests: ["tests/llm/decode/token_log_test.ts", "tests/llm/generation/batch_generate_test.ts"],
  },
  {
    name: "all sequences of a batch draw with one seed",
    file: "src/llm/engine/batch.ts",
    find: 'perPrompt("seed", seed, prompts, (value, i) => value + i)',
    replace: 'perPrompt("seed", seed, prompts, (value) => value)',
    tests: ["tests/llm/generation/batch_generate_test.ts"],
  },
  {
    name: "the standard error of a perplexity is that of a whole population",
    file: "src/llm/generation/perplexity.ts",
    find: "Math.sqrt(squares / (tokens - 1) / tokens)",
    replace: "Math.sqrt(squares / tokens / tokens)",
    tests: ["tests/cli/perplexity_test.ts", "tests/llm/generation/hidden_states_test.ts"],
  },
  {
    name: "a mark that comes in two pieces is a part of the answer",
    file: "src/llm/answer/parser.ts",
    find: "      end -= Math.max(...marks.map((mark) => overlap(this.#held, mark)));\n",
    replace: "",
    tests: ["tests/llm/generation/answer_test.ts"],
  },
  {
    name: "wavelengths between those that stay and those that stretch are stretched the other way round",
    file: "src/llm/layers/rope.ts",
    find: "return wavelength / (kept + (1 - kept) / factor);",
    replace: "return wavelength / (1 - kept + kept / factor);",
    tests: ["tests/llm/models/rope_scaling_test.ts", "tests/llm/models/llama_test.ts"],
  },
  {
    name: "a parameter that may be a text or null is never null",
    file: "src/llm/answer/tool_calls.ts",
    find: 'types.has("string") && !types.has("null")',
    replace: 'types.has("string")',
    tests: ["tests/llm/generation/answer_test.ts", "tests/llm/generation/call_formats_test.ts"],
  },
  {
    name: "integers of calls beyond 2^53 are rounded",
    file: "src/llm/answer/literal.ts",
    find: "Number.isSafeInteger(value) ? value : BigInt(source)",
    replace: "value",
    tests: ["tests/llm/generation/answer_test.ts", "tests/llm/generation/call_formats_test.ts"],
  },
  {
    name: "a window has one position more",
    file: "src/llm/layers/pass.ts",
    find: "mx.greater(column, mx.subtract(positions, window))",
    replace: "mx.greaterEqual(column, mx.subtract(positions, window))",
    tests: ["tests/llm/models/mlx_lm_families_test.ts"],
  },
  {
    name: "rows of experts stay sorted by expert",
    file: "src/llm/layers/experts.ts",
    find: "mx.take(y, places, 0)",
    replace: "mx.take(y, order, 0)",
    tests: ["tests/llm/models/mlx_lm_families_test.ts"],
  },
  {
    name: "weights of experts are probabilities among all of them, also where they are those among the chosen",
    file: "src/array/quantized/experts.ts",
    find: 'among === "chosen" ? reduce.softmax(own, -1) : own',
    replace: "own",
    tests: ["tests/kernels/experts_test.ts"],
  },
  {
    name: "layers that share keys and values read those of the first layer of their kind, not of the last",
    file: "src/llm/models/gemma4_text.ts",
    find: ".lastIndexOf(kind)",
    replace: ".indexOf(kind)",
    tests: ["tests/llm/models/mlx_lm_families_test.ts"],
  },
  {
    name: "experts of closed groups are chosen",
    file: "src/llm/layers/router.ts",
    find: "closedGroups: count - open,",
    replace: "closedGroups: 0,",
    tests: ["tests/llm/models/mlx_lm_families_test.ts"],
  },
  {
    name: "the draft head reads the hidden state before the token",
    file: "src/llm/layers/draft_head.ts",
    find:
      "      forwardInDtype(this.pre_fc_norm_embedding, embedded),\n      forwardInDtype(this.pre_fc_norm_hidden, hidden),",
    replace:
      "      forwardInDtype(this.pre_fc_norm_hidden, hidden),\n      forwardInDtype(this.pre_fc_norm_embedding, embedded),",
    tests: ["tests/llm/models/draft_head_test.ts"],
  },
  {
    name: "values of Gemma 4 are not normalised",
    file: "src/llm/layers/attention.ts",
    find: "valueNorm ? mx.fast.rmsNorm(plain, null, rmsNormEps) : plain",
    replace: "plain",
    tests: ["tests/llm/models/mlx_lm_families_test.ts"],
  },
  {
    name: "positions of layers with a window are those of the others",
    file: "src/llm/config/read_decoder.ts",
    find: "rope: slidingRope ?? whole.rope",
    replace: "rope: whole.rope",
    tests: ["tests/llm/models/mlx_lm_families_test.ts"],
  },
] as const satisfies readonly Mutant[];
