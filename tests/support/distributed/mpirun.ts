/**
 * Programs under `mpirun`.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { LIBRARY } from "../processes/programs.ts";

/** The output of all ranks, and how `mpirun` ended. */
export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly seconds: number;
}

/** Variables of programs under mpirun. */
export const ENVIRONMENT: Readonly<Record<string, string>> = {
  NO_COLOR: "1",
  VKMX_LIBRARY: LIBRARY ?? "",
  VKMX_THREADS: "1", // as many ranks as processors have threads of their own
  // Containers run as root, without the call that copies between processes.
  OMPI_ALLOW_RUN_AS_ROOT: "1",
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1",
  OMPI_MCA_btl_vader_single_copy_mechanism: "none",
};

/** Runs a module with its arguments in some processes. */
export async function mpirun(
  ranks: number,
  module: string | URL,
  { args = [], env = {} }: { readonly args?: readonly string[]; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Ended> {
  const began = performance.now();
  const program = [Deno.execPath(), "run", "-A", "--no-lock", "--no-check", String(module), ...args];
  const { code, stdout, stderr } = await new Deno.Command("mpirun", {
    args: ["--oversubscribe", "--bind-to", "none", "-n", `${ranks}`, ...program],
    env: { ...ENVIRONMENT, ...env },
  }).output();
  const decoder = new TextDecoder();
  const seconds = (performance.now() - began) / 1000;
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr), seconds };
}

/** Runs checks in some processes. Each prints its rank, how many processes and checks there are, and which checks failed; at least `least` are made. */
export async function runChecks(
  ranks: number,
  module: URL,
  device: string,
  least: number,
  args: readonly string[] = [],
): Promise<void> {
  const { code, stdout, stderr } = await mpirun(ranks, module, { args, env: { VKMX_DEVICE: device } });
  assertEquals([code, stderr], [0, ""]);
  const results = stdout.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(results.map(({ rank }) => rank).sort(), Array.from({ length: ranks }, (_, rank) => rank));
  for (const { rank, size, checks, failures } of results) {
    assertEquals({ rank, size, failures }, { rank, size: ranks, failures: [] });
    assert(checks >= least, `${checks} checks`);
  }
}

/** Runs code of a module in some processes; it may import "mod.ts". */
export async function mpirunCode(ranks: number, code: string, env: Record<string, string> = {}): Promise<Ended> {
  const path = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeTextFile(
    path,
    code.replaceAll('"mod.ts"', JSON.stringify(new URL("../../../mod.ts", import.meta.url))),
  );
  try {
    return await mpirun(ranks, path, { env });
  } finally {
    await Deno.remove(path);
  }
}
