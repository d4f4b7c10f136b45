/** A training of several processes has the losses of one process with the same batches, and resumes with any number of processes. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { type TrainCase, trainCase, type TrainOutcome } from "../support/distributed/train_checks.ts";
import { ENVIRONMENT, mpirun } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/train_checks.ts", import.meta.url);
const CLI = new URL("../../src/cli/mod.ts", import.meta.url).pathname;
const DATA = new URL("../../examples/data", import.meta.url).pathname;

mx.devices(); // opens the library outside of the tests, which count resources

/** Rounding of float32, over steps that carry it on. */
const TOLERANCE = 1e-4;

/** What process 0 prints of a training in some processes; each process says how often it saved. */
type Shared = Omit<TrainOutcome, "saves"> & { readonly saves: readonly number[] };

/** Trains in some processes. */
async function trainedBy(
  ranks: number,
  args: TrainCase,
): Promise<Shared> {
  const { code, stdout, stderr } = await mpirun(ranks, CHECKS, {
    args: [JSON.stringify(args)],
    env: { VKMX_DEVICE: "wasm" },
  });
  assertEquals([code, stderr], [0, ""]);
  return JSON.parse(stdout);
}

function assertClose(found: readonly number[], expected: readonly number[], what: string): void {
  assertEquals(found.length, expected.length, what);
  const worst = Math.max(...found.map((x, i) => Math.abs(x - expected[i]) / Math.max(1, Math.abs(expected[i]))));
  assert(worst <= TOLERANCE, `${what} differ by ${worst}`);
}

function assertSame(found: Omit<TrainOutcome, "saves">, expected: TrainOutcome): void {
  assertClose(found.train.flat(), expected.train.flat(), "losses");
  assertClose(found.valid.flat(), expected.valid.flat(), "validation losses");
  assertClose(found.values, expected.values, "trained values");
  assertEquals(found.trainedTokens, expected.trainedTokens);
}

Deno.test(await needing("two processes train as one does, four or one resume", "mpirun"), async () => {
  const [alone, shared] = [await Deno.makeTempDir(), await Deno.makeTempDir()];
  try {
    // The save after 5 iterations is between two steps of the optimizer, so gradients wait in it.
    const whole = await trainCase({ iters: 12, accumulate: 3, folder: alone });
    assert(whole.train.at(-1)![1] < whole.train[0][1] - 0.3, "it learned nothing");
    const begun = await trainedBy(2, { iters: 5, accumulate: 3, folder: shared });
    assertEquals(begun.saves, [1, 0], "only process 0 saves");
    assertClose(begun.train.flat(), whole.train.slice(0, 5).flat(), "losses of two processes");
    const resume = `${shared}/0000005.safetensors`;
    await Deno.copyFile(`${shared}/checkpoint.safetensors`, resume);
    const four = await trainedBy(4, { iters: 12, accumulate: 3, folder: shared, resume });
    assertEquals(four.saves, [2, 0, 0, 0]);
    assertSame(four, whole);
    assertSame(await trainCase({ iters: 12, accumulate: 3, folder: shared, resume }), whole);
  } finally {
    await Promise.all([alone, shared].map((folder) => Deno.remove(folder, { recursive: true })));
  }
});

Deno.test(await needing("vkmx launch -- vkmx train shares batches, and only process 0 prints", "mpirun"), async () => {
  const folder = await Deno.makeTempDir();
  const run = async (launcher: readonly string[], name: string) => {
    const program = [Deno.execPath(), "run", "-A", "--no-lock", "--no-check", CLI];
    const flags = ["--iters", "2", "--num-layers", "1", "--batch-size", "4", "--learning-rate", "1e-3", "--json"];
    const sizes = ["--max-seq-length", "48", "--steps-per-report", "1", "--val-batches", "1"];
    const train = ["train", "--data", DATA, "--adapter-path", `${folder}/${name}`, ...flags, ...sizes];
    const [command, ...args] = launcher.length === 0
      ? [...program, ...train]
      : [...program, ...launcher, ...program, ...train];
    const { code, stdout, stderr } = await new Deno.Command(command, {
      args,
      env: { ...ENVIRONMENT, VKMX_DEVICE: "wasm" },
    }).output();
    const [out, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
    assertEquals(code, 0, errors);
    return { ...JSON.parse(out), errors } as { losses: number[][]; val_losses: number[][]; errors: string };
  };
  try {
    const alone = await run([], "one");
    const both = await run(["launch", "-n", "2", "--"], "two");
    assertClose(both.losses.flat(), alone.losses.flat(), "losses");
    assertClose(both.val_losses.flat(), alone.val_losses.flat(), "validation losses");
    assertEquals(both.errors.match(/^Trained are/gm)?.length, 1, both.errors);
    const files = [...Deno.readDirSync(`${folder}/two`)].map(({ name }) => name).sort();
    assertEquals(files, ["adapter_config.json", "adapters.safetensors", "checkpoint.safetensors", "loss.svg"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
