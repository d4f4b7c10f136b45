/**
 * The promises of docs/reliability.md: each check, the figure asked of it, and what measures it.
 *
 * @module
 */

import type { ResultRow } from "./results.ts";

/** Tests that measure a check: all of a file, or those whose names match. */
interface Tests {
  /** Its path under tests. */
  readonly file: string;
  readonly name?: RegExp;
}

/** A row of the table. */
export interface Check {
  readonly what: string;
  /** The figure asked. */
  readonly asked: string;
  /** The task that measures it, with the name of its results; without one, tests do. */
  readonly task?: { readonly command: string; readonly results: string };
  /** Tests that `deno task test` counts for it; with a task they stand for it if that has not run. */
  readonly tests?: readonly Tests[];
  /** The missing part, if the check belongs to later work. */
  readonly later?: string;
}

const file = (...names: readonly string[]): Tests[] => names.map((name) => ({ file: `${name}_test.ts` }));
const named = (name: string, pattern: RegExp): Tests => ({ file: `${name}_test.ts`, name: pattern });

/** All checks; the first is number 1. */
export const CHECKS: readonly Check[] = [
  {
    what: "Every op against a reference in float64: random and edge shapes (0, 1, odd, strided, broadcast)",
    asked: "NMSE ≤ 1e-7 in float32, 1e-5 in 16-bit elementwise ops; ≥ 40 cases an op",
    tests: file("ops/ops", "ops/compile/random_programs", "kernels/elementwise", "kernels/reduce", "kernels/movement"),
  },
  {
    what: "Matrix products, attention, quantized products",
    asked: "NMSE ≤ 5e-4, bytes around buffers untouched",
    tests: file(
      "ops/guards",
      "ops/quantized/quantized_tolerance",
      "kernels/matmul",
      "kernels/attention",
      "kernels/paged_attention",
      "kernels/quantized",
      "kernels/prefill",
      "kernels/coopmat_matmul",
      "kernels/coopmat_attention",
    ),
  },
  {
    what: "Whole models against a reference",
    asked: "NMSE of logits ≤ 2e-3; the top-1 token equal at ≥ 99 % of positions",
    tests: [
      ...file("llm/models/model_shapes", "llm/checkpoint/conversions"),
      named("llm/generation/generate", /reference/),
      named("runtime/portability", /reference/),
    ],
  },
  {
    what: "GPU and CPU, 64 greedy tokens",
    asked: "equal tokens in float32",
    tests: [
      named("llm/generation/generate", /reference continuations/),
      named("runtime/portability", /reference tokens/),
    ],
  },
  {
    what: "NaN, infinities, −0, denormals; indices",
    asked: "classes equal; integers and indices exact",
    tests: file("ops/ops", "kernels/elementwise", "kernels/sampling", "llm/decode/nonfinite_logits"),
  },
  {
    what: "Gradients against finite differences",
    asked: "mean asymmetry ≤ 1e-4",
    later: "tests/transforms holds them; not measured here yet",
  },
  {
    what: "Vulkan validation, core and synchronization, over the whole suite",
    asked: "0 messages",
    task: { command: "deno task test:validate", results: "test-validate" },
  },
  {
    what: "GPU-assisted validation over the op suite",
    asked: "0 messages",
    task: { command: "deno task test:validate", results: "test-validate" },
  },
  {
    what: "AddressSanitizer and UndefinedBehaviorSanitizer over the native library",
    asked: "0 reports",
    task: { command: "deno task test:sanitize", results: "test-sanitize" },
  },
  {
    what: "Native objects alive after each test file",
    asked: "0 buffers, 0 plans, 0 devices",
    tests: file(
      "runtime/ffi",
      "runtime/ffi_plan",
      "runtime/ffi_pipelines",
      "runtime/memory",
      "llm/kv/cache_growth",
      "llm/kv/kv_buffers",
      "llm/generation/generate",
    ),
  },
  {
    what: "Soak: 10,000 steps on the CPU, 2,000 by Vulkan",
    asked: "process and device grow < 1 % or 1 MB after warm-up, no more than 5 % slower",
    task: { command: "deno task soak", results: "soak" },
  },
  {
    what: "100 model loads and 100 opened devices in one process",
    asked: "growth < 1 % or 1 MB each way",
    task: { command: "deno task soak", results: "soak" },
  },
  {
    what: "Fuzzing of every file format",
    asked:
      "10,000 inputs in CI, 1,000,000 by request: 0 crashes, each < 100 ms, < 64 MB extra, typed errors of one line",
    task: { command: "deno task fuzz", results: "fuzz" },
  },
  {
    what: "Limits of loaders",
    asked:
      "header ≤ 100 MB, ≤ 100,000 tensors, rank ≤ 8, strings ≤ 1 MB, templates ≤ 256 kB; sizes checked before allocation",
    tests: file("ops/files/io", "llm/models/config", "llm/checkpoint/model_files", "llm/text/tokenizer_limits"),
  },
  {
    what: "Damaged downloads: cut, flipped bits, full disk, two processes",
    asked: "100 % resumed or refused by SHA-256",
    tests: file("llm/checkpoint/hub", "llm/checkpoint/hub_cache"),
  },
  {
    what: "Injected failures: memory at each allocation, timeout, lost device",
    asked: "typed error, process alive, device can be opened again, weights loaded again",
    tests: file("runtime/ffi_faults", "runtime/memory_faults"),
  },
  {
    what: "Memory a model needs, before loading",
    asked: "refused with numbers where it does not fit",
    tests: [named("cli/generate", /does not fit into memory|memory cannot grow/)],
  },
  {
    what: "Latency of an abort: signal, Ctrl-C",
    asked: "≤ 1 token or 200 ms, device idle and memory free afterwards",
    tests: [
      ...file("runtime/responsive", "llm/generation/abort"),
      named("llm/generation/generate", /abort/),
      named("cli/generate", /Ctrl-C/),
    ],
  },
  {
    what: "Chat templates and prompts that mean harm",
    asked: "≤ 1e6 steps, ≤ 4 MB in a value, 1 s; 0 control ids from text of users",
    task: { command: "deno task fuzz", results: "fuzz" },
    tests: file("llm/text/chat_template", "llm/text/jinja"),
  },
  {
    what: "Server: limits of bodies, headers, queue and context; 500 clients at once",
    asked: "0 crashes; 0 answers lost, 0 mixed; process and device grow < 1 % or 1 MB after warm-up",
    task: { command: "deno task soak", results: "soak" },
    tests: file("server/http", "server/load", "server/malformed"),
  },
  {
    what: "Determinism: same seed and device",
    asked: "equal tokens, bit for bit",
    tests: [
      named("llm/generation/generate", /seed/),
      named("cli/generate", /seed/),
      named("llm/generation/batch_generate", /seed|company/),
    ],
  },
  {
    what: "Cold start: closed network, no GPU, no library, no HOME, read-only cache",
    asked: "one clear line each; an error only where a GPU was asked for",
    tests: [
      ...file("runtime/disk_cache"),
      named("cli/generate", /no GPU|another build|library/),
      named("runtime/devices", /library|driver/),
    ],
  },
  {
    what: "The least permissions",
    asked: "the scoped command runs",
    tests: [named("runtime/devices", /--allow-ffi/), named("cli/generate", /permission/)],
  },
  {
    what: "Planted mistakes: what the tests of every change catch",
    asked: "≥ 80 mistakes in all areas; ≥ 95 % of those that a full run catches",
    task: { command: "deno task mutants", results: "mutants" },
  },
  {
    what: "Soak of the engine: 5,000 requests on the CPU, 500 by Vulkan, some of them aborted",
    asked:
      "memory of keys and values below its limit at every token; process and device grow < 1 % or 1 MB after warm-up",
    task: { command: "deno task soak", results: "soak" },
  },
];

/** A test that ran. */
export interface TestCase {
  /** Its file's path under tests. */
  readonly file: string;
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
  /** What a failed one says. */
  readonly message?: string;
}

/** Results of tests for the checks that they measure. */
export function resultsOf(cases: readonly TestCase[]): ResultRow[] {
  return CHECKS.flatMap(({ tests }, i): ResultRow[] => {
    if (tests === undefined) return [];
    const own = cases.filter((one) =>
      tests.some(({ file, name }) => file === one.file && (name?.test(one.name) ?? true))
    );
    const count = (outcome: TestCase["outcome"]): number => own.filter((one) => one.outcome === outcome).length;
    const [passed, failed, skipped] = [count("passed"), count("failed"), count("skipped")];
    if (passed + failed === 0) return [];
    const measured = `${passed} tests passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
    return [{ check: i + 1, measured, ok: failed === 0 }];
  });
}

/**
 * The tests of a report in the format of JUnit, as `deno test --junit-path` writes it. The report says where Deno.test() was called,
 * which may be a module that registers tests for others. So `file` is that of a run of one file.
 */
export function casesOf(report: string, file?: string): TestCase[] {
  const text = (escaped: string): string =>
    escaped.replace(
      /&(quot|gt|lt|apos|amp|#39);/g,
      (_, name: string) => ({ quot: '"', gt: ">", lt: "<", apos: "'", amp: "&" })[name] ?? "'",
    );
  const cases = report.matchAll(/<testcase name="([^"]*)" classname="([^"]*)"[^>]*?(?:\/>|>([^]*?)<\/testcase>)/g);
  return Array.from(cases, ([, name, path, inside = ""]): TestCase => {
    const message = /<(?:failure|error)\b(?: message="([^"]*)")?/.exec(inside);
    return {
      file: (file ?? path).replace(/^.*\btests\//, "").replace(/^\.\//, ""),
      name: text(name),
      outcome: message ? "failed" : inside.includes("<skipped") ? "skipped" : "passed",
      ...message && { message: text(message[1] ?? "") },
    };
  });
}
