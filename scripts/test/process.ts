/**
 * One run of `deno test` as a process of its own, and what its report says.
 *
 * @module
 */

import { importArguments } from "../imports.ts";
import { casesOf, type TestCase } from "../reliability/checks.ts";
import { run, TOOLS } from "../tools.ts";

/** The result of a run of `deno test`. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  /** Names of tests that were ignored. */
  readonly skipped: readonly string[];
  /** All tests and how they ended. */
  readonly cases: readonly TestCase[];
}

/** The file and options of a run. */
export interface TestRun {
  /** Tells reports of runs at the same time apart: letters, digits and hyphens. */
  readonly name: string;
  /** The test file. */
  readonly file: string;
  /** Flags of `deno test`. */
  readonly flags: readonly string[];
  /** Added to the environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Shows all that it prints, not only what a failed run printed. */
  readonly show: boolean;
}

/** Where Mesa keeps what it compiled for software Vulkan, which is most of the time of a first run. */
const MESA_CACHE = { MESA_SHADER_CACHE_DIR: `${TOOLS}/mesa`, MESA_SHADER_CACHE_MAX_SIZE: "2G" } as const;

/** The environment of that cache, but where the caller's names another. */
function mesaCache(): Record<string, string> {
  return Deno.env.has("MESA_SHADER_CACHE_DIR") ? {} : MESA_CACHE;
}

/** Runs `deno test`. A run that ended before any test is one failure. */
export async function runTests({ name, file, flags, env, show }: TestRun): Promise<Counts> {
  const report = `${TOOLS}/junit-${name}.xml`;
  await Deno.remove(report).catch(() => {});
  const command = [Deno.execPath(), "test", "-A", ...await importArguments(), `--junit-path=${report}`, ...flags, file];
  const { ok, stdout, stderr } = await run(command, { env: { ...mesaCache(), ...env }, show });
  const text = await Deno.readTextFile(report).catch(() => "");
  await Deno.remove(report).catch(() => {});
  const head = /<testsuites [^>]*>/.exec(text)?.[0] ?? "";
  const count = (key: string): number => Number(new RegExp(` ${key}="(\\d+)"`).exec(head)?.[1] ?? 0);
  const cases = casesOf(text, file);
  const skipped = cases.filter(({ outcome }) => outcome === "skipped").map((one) => one.name);
  const failed = count("failures") + count("errors");
  if (!ok && !show) console.log(`${stdout}\n${stderr}`);
  return {
    passed: count("tests") - failed - skipped.length,
    failed: failed === 0 && !ok ? 1 : failed,
    skipped,
    cases,
  };
}
