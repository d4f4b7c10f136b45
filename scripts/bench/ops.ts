/**
 * `deno task bench:ops`: calls of the array functions, on the CPU beside `mlx[cpu]` and numpy in one run, on a GPU as rates.
 *
 *     deno task bench:ops --python .venv/bin/python   on the CPU, with the interpreter that has mlx[cpu] and numpy
 *     deno task bench:ops --no-reference              vkmx alone
 *     deno task bench:ops --device vulkan:0           on a GPU: GB/s and their share of a copy's, TFLOP/s, keys/s
 *     deno task bench:ops --filter sort --json        an array of { case, size, work, vkmx, mlx, numpy } in milliseconds
 *
 * Every result is waited for, and the sides take turns. The median of the samples after one that warms up counts. With --least it is the
 * least, for many short ones on a machine that does other work. Ratios above 1 say that vkmx is faster. Rows of functions that the library
 * lacks are printed as missing.
 *
 * @module
 */

import { type Flags, UsageError } from "../../src/cli/flags.ts";
import { note, print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { OP_CASES } from "./ops/cases.ts";
import { copyBandwidth, measureCase, type OpRow, type ReferenceName } from "./ops/measure.ts";
import { describeOps } from "./ops/table.ts";
import { Reference } from "./reference.ts";

const FLAGS = {
  "device": { value: "NAME", help: "wasm, beside the references, or a GPU by itself (wasm)" },
  "python": { value: "PATH", help: "interpreter that has mlx[cpu] and numpy (VKMX_PYTHON, else python3)" },
  "no-reference": { help: "vkmx alone" },
  "filter": { value: "TEXT", help: "only calls whose name contains it" },
  "scale": { value: "X", help: "size of the work, 1 for that of the documentation (1)", range: [1e-7, 16] },
  "samples": { value: "N", help: "samples of each side (7)", range: [1, 100], whole: true },
  "ms": { value: "X", help: "least milliseconds of a sample: short calls are repeated (20)", range: [0, 10_000] },
  "least": { help: "the least of the samples counts, not their median: for machines that do other work" },
  "json": { help: "print a JSON array" },
} as const satisfies Flags;

const PROGRAM = { name: "bench:ops", about: "Measures calls of the array functions.", flags: FLAGS };
/** Bytes of the copy that shares of bandwidth refer to, at scale 1. */
const COPY_BYTES = 2 ** 29;
/** Bytes that are held throughout, so that the CPU device has started its workers before the first call. */
const HELD_BYTES = 100e6;

await runMain(PROGRAM, async (values) => {
  const device = mx.deviceInfo(values.device ?? "wasm").name;
  mx.setDefaultDevice(device);
  const scale = values.scale ?? 1;
  const cases = OP_CASES.filter((c) => c.name.includes(values.filter ?? ""));
  if (cases.length === 0) throw new UsageError(`--filter is in no call: ${OP_CASES.map((c) => c.name).join(", ")}`);
  const compared = device === "wasm" && !values["no-reference"];
  await using reference = compared
    ? await Reference.start<ReferenceName>(
      values.python ?? Deno.env.get("VKMX_PYTHON") ?? "python3",
      "ops/reference.py",
      "mlx[cpu] and numpy",
    )
    : undefined;
  using held = mx.zeros([HELD_BYTES / 4]);
  mx.eval(held);
  const copy = device === "wasm" ? undefined : await copyBandwidth(COPY_BYTES * scale);
  const effort = { samples: values.samples ?? 7, ms: values.ms ?? 20, least: values.least };
  const rows: OpRow[] = [];
  for (const c of cases) {
    const row = await measureCase(c, scale, effort, reference);
    if (!row) continue;
    rows.push(row);
    if (!values.json) note(`${row.case}: ${row.vkmx === null ? row.missing : `${row.vkmx.toPrecision(3)} ms`}\n`);
  }
  print(values.json ? JSON.stringify(rows, null, 2) + "\n" : describeOps(rows, copy, reference?.versions));
  return 0;
});
