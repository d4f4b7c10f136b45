/**
 * THE table of tiers: which test file runs in which tier, on which devices, and where under the validation layers.
 *
 *   quick  `deno task test:quick`, while one works
 *   gate   `deno task test`, what .ci/run calls
 *   full   `deno task test:full`, nightly: all cases on all devices
 *
 * A tier runs what the ones before it run. Each file is one or two runs. One is on the CPU (VKMX_TEST_DEVICES=wasm) and
 * has all tests that name no device too. The other has the tests whose names end in a Vulkan device. Which cases of a
 * test run on software Vulkan is drawn in tests/support/draw_cases.ts.
 *
 * @module
 */

import { ROOT } from "../tools.ts";
import { hashOf, turnOf } from "./seed.ts";

/** The tiers, each with all of those before it. */
export const TIERS = ["quick", "gate", "full"] as const;

/** A tier of tests. */
export type Tier = typeof TIERS[number];

/** When a file runs and how. */
interface Entry {
  /** Paths of files. The first entry that matches a file is its entry. */
  readonly files: RegExp;
  /** The first tier with the tests on the CPU and those that name no device. */
  readonly cpu: Tier;
  /** The first tier with the tests of Vulkan devices, of files that have some: see {@link EACH_DEVICE}. */
  readonly vulkan?: Tier;
  /** The file chooses devices itself, so it is one run, after those on the CPU. */
  readonly whole?: true;
  /** Runs under the validation layers. `deno task test:validate`, a step of `test:full`, runs all files under them. */
  readonly validated?: true;
  /**
   * One in so many tests runs before the full tier: of those of software Vulkan devices, or of all where the file is one run.
   * See tests/support/share_tests.ts. It has no common divisor with `turns`, or with those of isDrawn() and
   * testTable() in its tests. Else a test's days are never those of some cases.
   */
  readonly share?: number;
  /** One in so many tests runs on the CPU before the full tier, for files of hundreds of tests of one form. Of divisors see `share`. */
  readonly shareOnCpu?: number;
  /**
   * One in so many of these files runs on software Vulkan before the full tier; the seed says which. For files of parts above the
   * kernels, which do the same on all devices.
   */
  readonly turns?: number;
  /**
   * LLVM compiles the shaders of software Vulkan without its optimizations before the full tier. For files that compile longer than
   * they compute: the code runs several times as long.
   */
  readonly unoptimized?: true;
  /** The programs that its tests start have one thread on the CPU before the full tier: two files run at once, and threads cost. */
  readonly oneThread?: true;
}

const ENTRIES: readonly Entry[] = [
  // Processes, documents and the tools around the library.
  { files: /^tests\/(cli\/npm_package|server\/(chat_page|other_clients))_test/, cpu: "full" },
  // Its tests take a quarter of the documents by the seed, so 4 and the share have no common divisor.
  { files: /^tests\/docs_commands_test/, cpu: "gate", whole: true, oneThread: true, share: 5 },
  // Each of their tests starts programs.
  {
    files:
      /^tests\/cli\/(generate|mcp|tools|table|train_table|convert_table|chat_table|chat_terminal|replicas|serve)_test/,
    cpu: "gate",
    oneThread: true,
    shareOnCpu: 2,
  },
  { files: /^tests\/cli\//, cpu: "gate", oneThread: true },
  { files: /^tests\/server\/(replicas_answers|mcp_tools)_test/, cpu: "gate", oneThread: true, shareOnCpu: 2 },
  { files: /^tests\/server\//, cpu: "gate", oneThread: true },
  { files: /^tests\/notebook\//, cpu: "gate", shareOnCpu: 3 },
  { files: /^tests\/fuzz_test/, cpu: "gate", shareOnCpu: 2 },
  { files: /^tests\/(bench_ops|third_party|wrong_programs)_test/, cpu: "gate" },
  { files: /^tests\/extending_test/, cpu: "gate", whole: true },
  { files: /^tests\/(bench|bench_gpu|tune)_test/, cpu: "gate", vulkan: "full", shareOnCpu: 3 },
  { files: /^tests\/distributed\/large_exchanges_test/, cpu: "full" },
  { files: /^tests\/distributed\/(train|shard|tensor_parallel)_test/, cpu: "gate", vulkan: "full", shareOnCpu: 3 },
  { files: /^tests\/distributed\/faults_test/, cpu: "gate", shareOnCpu: 2 },
  { files: /^tests\/distributed\//, cpu: "gate", vulkan: "gate" },
  { files: /^tests\/training\/examples_test/, cpu: "gate", vulkan: "full" },
  { files: /^tests\/[^/]+$/, cpu: "quick" },
  // The native library, which most of these files open by themselves.
  { files: /^tests\/runtime\/profile_test/, cpu: "gate", vulkan: "gate", validated: true, share: 2 },
  { files: /^tests\/runtime\/(streams|memory)_test/, cpu: "gate", vulkan: "gate", validated: true },
  // Programs and models that other files run under the validation layers.
  { files: /^tests\/runtime\/(embedded_model|library|portability)_test/, cpu: "gate", whole: true, share: 7 },
  { files: /^tests\/runtime\/soak_test/, cpu: "full", whole: true },
  { files: /^tests\/runtime\/(devices|responsive)_test/, cpu: "gate", whole: true, validated: true, share: 3 },
  { files: /^tests\/runtime\//, cpu: "gate", whole: true, validated: true },
  // Kernels, one dispatch at a time.
  {
    files: /^tests\/kernels\/(matmul|norm_rope_softmax)_test/,
    cpu: "quick",
    vulkan: "quick",
    validated: true,
    unoptimized: true,
  },
  {
    files: /^tests\/kernels\/(coopmat(?!_experts)\w*|qkv_epilogue)_test/,
    cpu: "quick",
    vulkan: "gate",
    share: 10,
    unoptimized: true,
  },
  {
    files: /^tests\/kernels\/(movement|elementwise)_test/,
    cpu: "quick",
    vulkan: "gate",
    validated: true,
    unoptimized: true,
  },
  { files: /^tests\/kernels\/sampling_test/, cpu: "gate", vulkan: "gate", share: 2 },
  { files: /^tests\/kernels\/paged_attention_test/, cpu: "quick", vulkan: "gate", share: 2, unoptimized: true },
  { files: /^tests\/kernels\//, cpu: "quick", vulkan: "gate", unoptimized: true },
  // Language models. A test of the fused kernels compiles for 10 to 50 seconds, so one or two of a file run.
  { files: /^tests\/llm\/decode\/(gemv|fused|batched|recurrent)_decode_test/, cpu: "quick", vulkan: "gate", share: 20 },
  {
    files: /^tests\/llm\/decode\/(expert|gpt_oss|small_float)_decode_test/,
    cpu: "quick",
    vulkan: "gate",
    share: 8,
  },
  { files: /^tests\/llm\/prefill\/(fused|mixer|expert)_prefill_test/, cpu: "quick", vulkan: "gate", share: 12 },
  {
    files: /^tests\/llm\/(generation\/batch_generate|speculation\/speculation)_test/,
    cpu: "gate",
    vulkan: "gate",
    share: 10,
    turns: 3,
  },
  { files: /^tests\/llm\/speculation\/mtp_test/, cpu: "gate", vulkan: "gate", shareOnCpu: 2, share: 5, turns: 3 },
  { files: /^tests\/llm\/kv\/pages_test/, cpu: "quick", vulkan: "gate", share: 2 },
  {
    files:
      /^tests\/llm\/(engine\/(choice|engine|engine_refusals|prompts_together|window_pages)|decode\/(coded_pages|unpack_codes)|kv\/(?!kv_bits|cache_growth)\w+)_test/,
    cpu: "quick",
    vulkan: "gate",
    share: 10,
    turns: 3,
  },
  { files: /^tests\/llm\/engine\/engine_(speculation|embed)_test/, cpu: "gate", vulkan: "full", shareOnCpu: 2 },
  { files: /^tests\/llm\/engine\/engine_(drafters|head)_test/, cpu: "gate", vulkan: "full", shareOnCpu: 4 },
  {
    files: /^tests\/llm\/placement\/host_experts_test/,
    cpu: "gate",
    vulkan: "gate",
    share: 3,
    turns: 2,
    unoptimized: true,
  },
  { files: /^tests\/llm\/placement\//, cpu: "gate", vulkan: "gate", turns: 2, unoptimized: true },
  { files: /^tests\/llm\/engine\/engine_(drafts|life)_test/, cpu: "gate", vulkan: "gate", share: 5, turns: 3 },
  { files: /^tests\/llm\/models\/mlx_lm_families_test/, cpu: "gate", vulkan: "full", shareOnCpu: 3 },
  // They compile the shaders of fused_decode and fused_prefill, with other constants.
  {
    files:
      /^tests\/llm\/\w+\/(mixed_formats|paged_decode|chunk_decode|layer_ropes|megakernel_check|masked_choice|model_updates|nonfinite_logits|prefill_tail|cache_growth)_test/,
    cpu: "quick",
    vulkan: "gate",
    share: 11,
    turns: 3,
  },
  { files: /^tests\/llm\/decode\/layer_features_test/, cpu: "quick", vulkan: "gate", share: 17, turns: 3 },
  { files: /^tests\/llm\/generation\/generate_test/, cpu: "quick", vulkan: "quick", validated: true, share: 3 },
  { files: /^tests\/llm\/structured\/structured_test/, cpu: "gate", vulkan: "gate", shareOnCpu: 2, share: 5, turns: 2 },
  { files: /^tests\/llm\/\w+\/(tokenizer_limits|hub|hub_cache)_test/, cpu: "gate", vulkan: "gate", share: 3 },
  // Accuracy of the embedded model: minutes of arithmetic on software Vulkan.
  { files: /^tests\/llm\/kv\/kv_bits_test/, cpu: "gate", vulkan: "full" },
  // Each test compiles the shaders of a whole model: one or two of a file run.
  {
    files: /^tests\/llm\/models\/families_test/,
    cpu: "quick",
    vulkan: "gate",
    share: 11,
    turns: 3,
    unoptimized: true,
  },
  {
    files: /^tests\/llm\/models\/model_shapes_test/,
    cpu: "quick",
    vulkan: "gate",
    share: 5,
    turns: 2,
    unoptimized: true,
  },
  {
    files: /^tests\/llm\/checkpoint\/(conversions|gguf)_test/,
    cpu: "gate",
    vulkan: "gate",
    shareOnCpu: 2,
    share: 19,
    turns: 2,
    unoptimized: true,
  },
  // Long ones whose parts have quick tests of their own.
  {
    files:
      /^tests\/llm\/\w+\/(prefill_lowering|convert|abort|convert_gguf|gguf_output|gguf_tokenizer|subword_tokenizers)_test/,
    cpu: "gate",
    vulkan: "gate",
    shareOnCpu: 2,
    share: 5,
    turns: 2,
  },
  {
    files: /^tests\/llm\/\w+\/(prefill|hidden_states|exact)_test/,
    cpu: "gate",
    vulkan: "gate",
    share: 5,
    turns: 2,
  },
  {
    files:
      /^tests\/llm\/(speculation\/draft_model|engine\/fused_steps|structured\/structured_(grammar|schema|regex))_test/,
    cpu: "quick",
    vulkan: "gate",
    shareOnCpu: 2,
    share: 5,
    turns: 2,
  },
  {
    files: /^tests\/(training\/(loop|finetune|tuner|checkpoint)|transforms\/mlx_derivatives)_test/,
    cpu: "gate",
    vulkan: "gate",
    share: 5,
    turns: 2,
  },
  { files: /^tests\/llm\//, cpu: "quick", vulkan: "gate", share: 5, turns: 2 },
  {
    files: /^tests\/(nn|training|optimizers|transforms|types|plot)\//,
    cpu: "quick",
    vulkan: "gate",
    share: 5,
    turns: 2,
  },
  // Array functions.
  { files: /^tests\/ops\/tensor\/large_arrays_test/, cpu: "gate", vulkan: "gate", share: 4 },
  {
    files:
      /^tests\/ops\/(signal\/fft|compile\/(export|random_programs)|files\/io|quantized\/half_products|linalg\/eigen)_test/,
    cpu: "gate",
    vulkan: "gate",
    share: 4,
    unoptimized: true,
  },
  // An op is on the CPU every time. Its cases on software Vulkan take 3 or 9 turns.
  { files: /^tests\/ops\/ops_test/, cpu: "quick", vulkan: "gate", share: 2, unoptimized: true },
  { files: /^tests\/ops\/mlx_cases_test/, cpu: "quick", vulkan: "gate", unoptimized: true },
  { files: /^tests\/ops\//, cpu: "quick", vulkan: "gate", share: 4, unoptimized: true },
];

/** Matches a file that has tests for each device, with the name of the device in their names. */
export const EACH_DEVICE = /\b(testDevices\(\)|kernelTest\b)/;

/** One process of `deno test`. */
export interface Run {
  readonly file: string;
  readonly pass: "cpu" | "vulkan";
  /** Flags that choose tests of the file. */
  readonly filter: readonly string[];
  readonly validated: boolean;
  /** One in so many tests runs: of those that {@link shareOf} says. */
  readonly share: number;
  readonly shareOf: "vulkan" | "all";
  /** Software Vulkan compiles without optimizations. */
  readonly unoptimized: boolean;
  /** Programs that tests start have one thread on the CPU. */
  readonly oneThread: boolean;
}

/** Whether `tier` has what begins at `first`. */
function has(tier: Tier, first: Tier | undefined): boolean {
  return first !== undefined && TIERS.indexOf(first) <= TIERS.indexOf(tier);
}

/** All tests of a file on all devices as one process. */
export function wholeRun(file: string): Run {
  return {
    file,
    pass: "vulkan",
    filter: [],
    validated: false,
    share: 1,
    shareOf: "all",
    unoptimized: false,
    oneThread: false,
  };
}

/** Whether it is a file's turn. */
function inTurn(file: string, turns: number, seed: string): boolean {
  return (hashOf(file) + turnOf(seed)) % turns === 0;
}

/** The runs of a file with a seed. Throws where the table does not know it. */
export function runsOf(file: string, tier: Tier, seed: string): readonly Run[] {
  const entry = ENTRIES.find(({ files }) => files.test(file));
  if (!entry) throw new Error(`scripts/test/tiers.ts has no entry for ${file}`);
  const early = tier !== "full";
  const whole = { ...wholeRun(file), oneThread: early && entry.oneThread === true };
  const onCpu: Run = { ...whole, pass: "cpu", share: early ? entry.shareOnCpu ?? 1 : 1 };
  const onVulkan: Run = {
    ...whole,
    validated: entry.validated === true,
    share: early ? entry.share ?? 1 : 1,
    unoptimized: early && entry.unoptimized === true,
  };
  if (entry.whole) return has(tier, entry.cpu) ? [onVulkan] : [];
  return [
    ...has(tier, entry.cpu) ? [onCpu] : [],
    ...has(tier, entry.vulkan) && (!early || inTurn(file, entry.turns ?? 1, seed)) &&
        EACH_DEVICE.test(Deno.readTextFileSync(ROOT + file))
      ? [{ ...onVulkan, shareOf: "vulkan" as const, filter: ["--filter", "/vulkan:\\d/"] }]
      : [],
  ];
}
