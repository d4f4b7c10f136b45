/**
 * `deno task bench:train`: steps of training, on the CPU beside `mlx[cpu]` in one run, on a GPU beside their forward passes.
 *
 *     deno task bench:train --python .venv/bin/python   on the CPU, with the interpreter that has mlx[cpu] and mlx-lm
 *     deno task bench:train --no-reference              vkmx alone
 *     deno task bench:train --device vulkan:0           on a GPU: ratios to forward passes, TFLOP/s, shares of the matrix units
 *     deno task bench:train --filter mlp --json         an array of rows: milliseconds, bytes, floating-point operations of a step
 *     deno task bench:train --profile --filter 10M      the time of every op and kernel of a step
 *
 * A step makes gradients of the mean loss of a batch and updates parameters with Adam; every one is waited for. The sides take turns, and
 * the median of the samples after one that warms up counts. With --least it is the least, for many short ones on a machine that does other
 * work. Ratios above 1 say that vkmx is faster. TFLOP/s count six operations for each weight of a matrix and token, and attention; what
 * checkpoints compute again does not count.
 *
 * @module
 */

import { type Flags, UsageError } from "../../src/cli/flags.ts";
import { note, print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { Reference } from "./reference.ts";
import { TRAIN_CASES } from "./train/cases.ts";
import { measureTraining, profileTraining, type TrainRow } from "./train/measure.ts";
import { describeTraining, mannerName } from "./train/table.ts";

const FLAGS = {
  "device": { value: "NAME", help: "wasm, beside the reference, or a GPU by itself (wasm)" },
  "python": { value: "PATH", help: "interpreter that has mlx[cpu] and mlx-lm (VKMX_PYTHON, else python3)" },
  "no-reference": { help: "vkmx alone" },
  "filter": { value: "TEXT", help: "only models whose name contains it" },
  "samples": { value: "N", help: "samples of each side (7)", range: [1, 100], whole: true },
  "ms": { value: "X", help: "least milliseconds of a sample: short steps are repeated (200)", range: [0, 10_000] },
  "least": { help: "the least of the samples counts, not their median: for machines that do other work" },
  "peak": { value: "X", help: "TFLOP/s of a GPU's matrix units, to compute shares (990)", range: [0.001, 1e6] },
  "profile": { help: "print the time of every op and kernel of a step instead" },
  "json": { help: "print a JSON array" },
} as const satisfies Flags;

const PROGRAM = { name: "bench:train", about: "Measures steps of training.", flags: FLAGS };

await runMain(PROGRAM, async (values) => {
  const device = mx.deviceInfo(values.device ?? "wasm").name;
  mx.setDefaultDevice(device);
  const on = device === "wasm" ? "cpu" : "gpu";
  const there = TRAIN_CASES.filter((c) => c.on === on);
  const cases = there.filter((c) => c.name.includes(values.filter ?? ""));
  if (cases.length === 0) throw new UsageError(`--filter is in no model: ${there.map((c) => c.name).join(", ")}`);
  if (values.profile) {
    for (const c of cases) {
      for (const manner of c.manners) print(`${c.name}, ${mannerName(manner)}\n${await profileTraining(c, manner)}\n`);
    }
    return 0;
  }
  await using reference = on === "cpu" && !values["no-reference"]
    ? await Reference.start<"mlx">(
      values.python ?? Deno.env.get("VKMX_PYTHON") ?? "python3",
      "train/reference.py",
      "mlx[cpu] and mlx-lm",
    )
    : undefined;
  const effort = { samples: values.samples ?? 7, ms: values.ms ?? 200, least: values.least };
  const rows: TrainRow[] = [];
  for (const c of cases) {
    for (const manner of c.manners) {
      const row = await measureTraining(c, manner, effort, reference);
      rows.push(row);
      if (!values.json) note(`${c.name}, ${mannerName(manner)}: ${row.step.toPrecision(3)} ms\n`);
    }
  }
  const table = (): string =>
    describeTraining(rows, on === "gpu" ? values.peak ?? 990 : undefined, reference?.versions.mlx);
  print(values.json ? JSON.stringify(rows, null, 2) + "\n" : table());
  return 0;
});
