/**
 * `deno task parity`: writes docs/parity.md, one row for each function of MLX with where it runs here, or why it is not there.
 *
 * What MLX has is the committed list of tests/golden/mlx_names.py. Marks come from the tests: an op with rows in their case table, or
 * with cases among MLX's own results, is run by them on Vulkan and in WASM. `--check` says whether the page is up to date, without writing it.
 *
 * @module
 */

import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import type { Flags } from "../src/cli/flags.ts";
import * as mx from "../mod.ts";
import { OPS, UNTESTED } from "../tests/ops/cases.ts";
import { functionsWithCases } from "../tests/support/oracles/mlx_cases.ts";
import { ROOT } from "./tools.ts";
import { type Left, NOT_RUN_ON_VULKAN, TESTS_LEFT, TESTS_LEFT_ON_VULKAN, TESTS_RUN } from "./parity/tests.ts";

const FLAGS = { "check": { help: "fail where docs/parity.md is not what would be written" } } as const satisfies Flags;
const PROGRAM = {
  name: "parity",
  about: "Writes docs/parity.md, the functions of MLX and where they run.",
  flags: FLAGS,
};
const LIST = "tests/golden/mlx_names.txt";
/** The page. */
export const PAGE = "docs/parity.md";

/** Names that another rule than camelCase gives. */
const RENAMED: Readonly<Record<string, string>> = {
  "array.mT": "Tensor.mT",
  "array.T": "Tensor.T",
};

/** Factorizations, and what needs one: a Vulkan array is computed on the CPU, as in MLX. */
const ON_CPU: ReadonlySet<string> = new Set(
  [
    ...["cholesky", "choleskyInv", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lu", "luFactor", "pinv", "qr"],
    ...["slogdet", "solve", "solveTriangular", "svd", "triInv"],
  ].map((name) => `linalg.${name}`),
);

/** Why functions of MLX are not there, by reason. */
const REASONS: Readonly<Record<string, readonly string[]>> = {
  "`fast.vulkanKernel` takes kernels in GLSL and SPIR-V: docs/custom-kernels.md": [
    ...["fast.cuda_kernel", "fast.metal_kernel", "fast.precompiled_cuda_kernel"],
  ],
  "JavaScript has no DLPack; `array()` takes typed arrays": ["from_dlpack"],
};

/** Reasons by the name of the function. */
const REASON: ReadonlyMap<string, string> = new Map(
  Object.entries(REASONS).flatMap(([reason, names]) => names.map((name) => [name, reason] as const)),
);

/** The name here of a function of MLX: "array.log_x" is "Tensor.logX". */
export function nameOf(mlx: string): string {
  const renamed = RENAMED[mlx];
  if (renamed !== undefined) return renamed;
  return mlx.replace(/^array\./, "Tensor.").replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** Whether the library has a name: "fast.rope", "Tensor.abs". */
function has(name: string): boolean {
  const path = name.replace(/^Tensor\./, "Tensor.prototype.").split(".");
  const last = path.pop()!;
  const holder = path.reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], mx);
  return holder !== undefined && holder !== null && last in (holder as object);
}

/** A function of MLX on the page. */
export interface ParityRow {
  readonly mlx: string;
  readonly name: string;
  /** Whether it is there. */
  readonly there: boolean;
  /** Whether rows of the case table run it on both devices. */
  readonly tested: boolean;
  /** What else is to be said; of what is not there, why. */
  readonly note: string;
}

/** Of what is there and of which the case table knows nothing. */
const NO_ROWS = "no rows in the case table yet";

/** Says of a method that calls a function what is known of that. */
function methodOf(name: string, ops: ReadonlySet<string>): string {
  const called = name.replace(/^Tensor\./, "");
  if (called === name) return NO_ROWS;
  return ops.has(called) ? `the function \`${called}\` as a method` : UNTESTED.get(called) ?? NO_ROWS;
}

/** A row for each name of MLX's list. */
export function parityRows(list: string): ParityRow[] {
  const ops = new Set(OPS);
  const golden = functionsWithCases();
  return list.split("\n").filter((line) => line !== "" && !line.startsWith("#")).map((mlx) => {
    const name = nameOf(mlx);
    const there = has(name);
    const tested = there && (ops.has(name) || golden.has(mlx));
    let note = "";
    if (!there) note = REASON.get(mlx) ?? "";
    else if (ON_CPU.has(name)) note = "factorized on the CPU, as in MLX";
    else if (!tested) note = UNTESTED.get(name) ?? methodOf(name, ops);
    return { mlx, name, there, tested, note };
  });
}

/** Titles of the parts of the page by the module of MLX. */
const PARTS = {
  "": "mlx.core",
  "fast.": "mlx.core.fast",
  "fft.": "mlx.core.fft",
  "linalg.": "mlx.core.linalg",
  "random.": "mlx.core.random",
  "array.": "mlx.core.array",
} as const;

/** The page of a list of MLX's names. */
export function parityPage(list: string): string {
  const version = /^# mlx (\S+)/.exec(list)?.[1] ?? "";
  const rows = parityRows(list);
  const there = rows.filter((row) => row.there).length;
  const lines = [
    "# Functions of MLX",
    "",
    `Every function of MLX ${version} and what it is called here: ${there} of ${rows.length} are there. V and W: tests run it on Vulkan`,
    "and in WASM, rows of a case table against float64 oracles (`tests/ops/cases.ts`) or drawn arguments against what MLX gives",
    "(`tests/ops/mlx_cases_test.ts`). Where a function is there without marks, the last column says what tests it; where it is not",
    "there, why. This page is written by `deno task parity`.",
  ];
  for (const [prefix, title] of Object.entries(PARTS)) {
    const part = rows.filter(({ mlx }) => (/^\w+\./.exec(mlx)?.[0] ?? "") === prefix);
    const cells = part.map(({ mlx, name, there, tested, note }) => [
      `\`${mlx}\``,
      there ? `\`${name}\`` : "",
      tested ? (ON_CPU.has(name) ? "CPU" : "V") : "",
      tested ? "W" : "",
      note,
    ]);
    const head = ["MLX", "vkmx", "V", "W", "note"];
    const widths = head.map((h, i) => Math.max(h.length, ...cells.map((c) => c[i].length)));
    const line = (row: readonly string[]) => `| ${row.map((cell, i) => cell.padEnd(widths[i])).join(" | ")} |`;
    lines.push("", `## ${title}`, "", line(head), `| ${widths.map((w) => "-".repeat(w)).join(" | ")} |`);
    lines.push(...cells.map(line));
  }
  lines.push("", "## MLX's own tests", "");
  lines.push(
    `${TESTS_RUN.wasm.passed} of the ${TESTS_RUN.wasm.run} Python tests of MLX 0.32 that need neither Metal nor PyTorch pass on the CPU when`,
    "every call goes to vkmx (`deno task test:mlx`, [tests/reference/mlx_bridge](../tests/reference/mlx_bridge/README.md)). The others:",
    "",
    ...listLeft(TESTS_LEFT),
    "",
    `On Vulkan (lavapipe, a software GPU) ${TESTS_RUN.vulkan.passed} of ${TESTS_RUN.vulkan.run} pass, those that want a GPU among them, without`,
    `${
      NOT_RUN_ON_VULKAN.map((name) => `\`${name}\``).join(", ")
    }, which were not run to their end there. Besides the above do not:`,
    "",
    ...listLeft(TESTS_LEFT_ON_VULKAN),
  );
  return lines.join("\n") + "\n";
}

function listLeft(left: Left): string[] {
  return left.map(([reason, tests]) => `- ${reason}: ${tests.map((name) => `\`${name}\``).join(", ")}`);
}

if (import.meta.main) {
  await runMain(PROGRAM, async (values) => {
    const page = parityPage(await Deno.readTextFile(ROOT + LIST));
    if (values.check) {
      const current = await Deno.readTextFile(ROOT + PAGE).catch(() => "");
      if (current !== page) throw new Error(`${PAGE} is not up to date: run \`deno task parity\``);
    } else {
      await Deno.writeTextFile(ROOT + PAGE, page);
      print(`${PAGE} written\n`);
    }
    return 0;
  });
}
