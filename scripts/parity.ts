/**
 * `deno task parity`: writes docs/parity.md, the functions of MLX that are exceptions. They are missing, run on the CPU
 * only, or have no case table that tests them. `--full` prints a row for each function of MLX instead.
 *
 * MLX's functions are the committed list of tests/golden/mlx_names.py. Marks come from the tests. An op with rows in their case table, or
 * with cases among MLX's own results, runs on Vulkan and in WASM. `--check` fails if the page is stale, without writing it.
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

const FLAGS = {
  "check": { help: "fail if docs/parity.md is not up to date" },
  "full": { help: "print the table of all functions instead" },
} as const satisfies Flags;
const PROGRAM = {
  name: "parity",
  about: "Writes docs/parity.md, the functions of MLX that are missing or need a note.",
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

/** Functions of mx.linalg that factorize: a Vulkan array is computed on the CPU, as in MLX. */
const ON_CPU_GROUPS: Left = [
  ["factorizations", ["cholesky", "lu", "luFactor", "qr", "svd"].map(inLinalg)],
  ["eigenvalues", ["eig", "eigh", "eigvals", "eigvalsh"].map(inLinalg)],
  ["inverses and determinants", ["choleskyInv", "det", "inv", "pinv", "slogdet", "triInv"].map(inLinalg)],
  ["systems of equations", ["solve", "solveTriangular"].map(inLinalg)],
];
const ON_CPU: ReadonlySet<string> = new Set(ON_CPU_GROUPS.flatMap(([, names]) => names));

function inLinalg(name: string): string {
  return `linalg.${name}`;
}

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
  /** A note; for a missing function, the reason. */
  readonly note: string;
}

/** Of what is there and of which the case table knows nothing. */
const NO_ROWS = "no rows in the case table yet";

/** How the note of a method begins that calls a tested function. */
const METHOD = "the function `";

/** Gives a method the facts of the function that it calls. */
function methodOf(name: string, ops: ReadonlySet<string>): string {
  const called = name.replace(/^Tensor\./, "");
  if (called === name) return NO_ROWS;
  return ops.has(called) ? `${METHOD}${called}\` as a method` : UNTESTED.get(called) ?? NO_ROWS;
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

/** A row of cells of a table. */
type Cells = readonly string[];

/** A Markdown table. */
function tableOf(head: Cells, rows: readonly Cells[]): string[] {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i].length)));
  const line = (row: Cells): string => `| ${row.map((cell, i) => cell.padEnd(widths[i])).join(" | ")} |`;
  return [line(head), `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`, ...rows.map(line)];
}

/** The rows of a part of MLX. */
function withPrefix(rows: readonly ParityRow[], prefix: string): ParityRow[] {
  return rows.filter(({ mlx }) => (/^\w+\./.exec(mlx)?.[0] ?? "") === prefix);
}

/** Every function of MLX, where it runs and what tests it. */
export function fullTable(list: string): string {
  const rows = parityRows(list);
  const parts = Object.entries(PARTS).map(([prefix, title]) => {
    const cells = withPrefix(rows, prefix).map(({ mlx, name, there, tested, note }) => [
      `\`${mlx}\``,
      there ? `\`${name}\`` : "",
      tested ? (ON_CPU.has(name) ? "CPU" : "V") : "",
      tested ? "W" : "",
      note,
    ]);
    return [`## ${title}`, "", ...tableOf(["MLX", "vkmx", "V", "W", "note"], cells)].join("\n");
  });
  return parts.join("\n\n") + "\n";
}

/** The page of a list of MLX's names. */
export function parityPage(list: string): string {
  const version = /^# mlx (\S+)/.exec(list)?.[1] ?? "";
  const rows = parityRows(list);
  const there = rows.filter((row) => row.there).length;
  const missing = rows.filter((row) => !row.there);
  const others = rows.filter(({ name, there, tested, note }) =>
    there && !tested && !ON_CPU.has(name) && !note.startsWith(METHOD)
  );
  const lines = [
    "# Functions of MLX",
    "",
    `${there} of ${rows.length} functions of MLX ${version} are there, under MLX's name in camelCase. This page lists the exceptions;`,
    "`deno task parity --full` prints a row for each function. `deno task parity` writes this page.",
    "",
    "Other functions run on Vulkan and in WASM, and tests compare both with float64 oracles (`tests/ops/cases.ts`) or with",
    "MLX's results for drawn arguments (`tests/ops/mlx_cases_test.ts`). So do methods of an array that call them.",
    "",
    "## Not there",
    "",
    ...tableOf(["MLX", "reason"], missing.map(({ mlx, note }) => [`\`${mlx}\``, note])),
    "",
    "## Computed on the CPU",
    "",
    "These functions of Vulkan arrays run on the CPU, as in MLX:",
    "",
    ...listLeft(ON_CPU_GROUPS),
    "",
    "## Tested elsewhere",
    "",
    "These have no rows in the case table; their tests are:",
    "",
    ...listLeft(
      Array.from(Map.groupBy(others, ({ note }) => note), ([note, of]) => [note, of.map(({ name }) => name)]),
    ),
    "",
    "## MLX's own tests",
    "",
    `${TESTS_RUN.wasm.passed} of ${TESTS_RUN.wasm.run} Python tests of MLX 0.32 pass on the CPU when every call goes to vkmx (\`deno task test:mlx\`,`,
    "[tests/reference/mlx_bridge](../tests/reference/mlx_bridge/README.md)). Tests that need Metal or PyTorch are not counted. These do not pass:",
    "",
    ...listLeft(TESTS_LEFT),
    "",
    `On Vulkan (lavapipe, a software GPU) ${TESTS_RUN.vulkan.passed} of ${TESTS_RUN.vulkan.run} pass, among them those that need a GPU.`,
    `${
      NOT_RUN_ON_VULKAN.map((name) => `\`${name}\``).join(" and ")
    } were not run to their end. Besides the above these do not pass:`,
    "",
    ...listLeft(TESTS_LEFT_ON_VULKAN),
  ];
  return lines.join("\n") + "\n";
}

function listLeft(left: Left): string[] {
  return left.map(([reason, tests]) => `- ${reason}: ${tests.map((name) => `\`${name}\``).join(", ")}`);
}

if (import.meta.main) {
  await runMain(PROGRAM, async (values) => {
    const list = await Deno.readTextFile(ROOT + LIST);
    const page = parityPage(list);
    if (values.full) print(fullTable(list));
    else if (values.check) {
      const current = await Deno.readTextFile(ROOT + PAGE).catch(() => "");
      if (current !== page) throw new Error(`${PAGE} is not up to date: run \`deno task parity\``);
    } else {
      await Deno.writeTextFile(ROOT + PAGE, page);
      print(`${PAGE} written\n`);
    }
    return 0;
  });
}
