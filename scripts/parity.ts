/**
 * `deno task parity`: writes docs/parity.md, one row for each function of MLX with where it runs here, or why it is not there.
 *
 * What MLX has is the committed list of tests/golden/mlx_names.py. Marks come from the case table of the tests: an op with rows
 * there is run by them on Vulkan and in WASM. `--check` says whether the page is up to date, without writing it.
 *
 * @module
 */

import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import type { Flags } from "../src/cli/flags.ts";
import * as mx from "../mod.ts";
import { OPS, UNTESTED } from "../tests/ops/cases.ts";
import { ROOT } from "./tools.ts";

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

/** Why functions of MLX are not there, by reason. Those that are there are marked whether they stand here or not. */
const REASONS: Readonly<Record<string, readonly string[]>> = {
  "gradients and transformations are not there yet": [
    ...["checkpoint", "depends", "grad", "jvp", "stop_gradient", "value_and_grad", "vjp", "vmap"],
  ],
  "kernels of vkmx are rows of shaders/kernels.zon: docs/extending.md": [
    ...["fast.cuda_kernel", "fast.metal_kernel", "fast.precompiled_cuda_kernel"],
  ],
  "a function of JavaScript is kept as its source": ["export_function", "exporter", "import_function"],
  "`profile()` shows what runs": ["export_to_dot"],
  "JavaScript has no DLPack; `array()` takes typed arrays": ["from_dlpack"],
  "JavaScript has one thread for arrays": ["new_thread_local_stream", "new_thread_unsafe_stream", "clear_streams"],
  "streams are not there yet": ["default_stream", "new_stream", "set_default_stream", "stream", "synchronize"],
  "`devices()` lists them": ["device_count", "is_available"],
  "`setFusion()` does what it is used for": ["disable_compile", "enable_compile"],
  "buffers that are freed go back to the device": [
    ...["clear_cache", "get_cache_memory", "get_memory_limit", "set_cache_limit", "set_memory_limit"],
    ...["set_wired_limit", "get_array_buffer_size"],
  ],
  "Fourier transforms are not there yet": [
    ...[
      "fft",
      "fft2",
      "fftfreq",
      "fftn",
      "fftshift",
      "ifft",
      "ifft2",
      "ifftn",
      "ifftshift",
      "irfft",
      "irfft2",
      "irfftn",
    ],
    ...["istft", "rfft", "rfft2", "rfftfreq", "rfftn", "stft"],
  ].map((name) => `fft.${name}`),
  "complex matrices have no factorizations yet": ["linalg.eig", "linalg.eigvals"],
  "parts of complex numbers are not there yet": [
    ...["conj", "conjugate", "imag", "real", "array.conj", "array.imag", "array.real"],
  ],
  "questions about types are not there yet": ["can_cast", "isdtype", "issubdtype", "result_type"],
  "files of NumPy and GGUF are not written yet": ["save_gguf", "savez", "savez_compressed"],
  "not there yet": [
    ...["einsum_path", "fast.cross_entropy", "fast.gated_delta_update", "from_fp8", "to_fp8", "gather_qmm"],
    ...["gather_qqmm", "hadamard_transform", "matrix_norm", "minmax", "qqmm", "random.multivariate_normal"],
    ...["unique", "view", "array.view", "permute_dims", "slice", "slice_update"],
  ],
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

/** Says so of a method that calls a function which has rows. */
function methodOf(name: string, ops: ReadonlySet<string>): string {
  const called = name.replace(/^Tensor\./, "");
  return called !== name && ops.has(called) ? `the function \`${called}\` as a method` : "";
}

/** A row for each name of MLX's list. */
export function parityRows(list: string): ParityRow[] {
  const ops = new Set(OPS);
  return list.split("\n").filter((line) => line !== "" && !line.startsWith("#")).map((mlx) => {
    const name = nameOf(mlx);
    const there = has(name);
    const tested = there && ops.has(name);
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
    `Every function of MLX ${version} and what it is called here: ${there} of ${rows.length} are there. V and W: rows of the tests' case table`,
    "(`tests/ops/cases.ts`) run it on Vulkan and in WASM, against float64 oracles. Where a function is there without marks, the",
    "last column says what tests it; where it is not there, why. This page is written by `deno task parity`.",
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
  return lines.join("\n") + "\n";
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
