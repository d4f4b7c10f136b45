/**
 * `deno task test`: sets the machine up, runs the tests of the gate, and closes with the line "N passed, N failed".
 *
 *     deno task test                                  the gate, as .ci/run runs it
 *     deno task test tests/ops                        its tests of a folder or of files
 *     deno task test --tier full tests/ops/ops_test.ts
 *     deno task test:quick                            while one works
 *     deno task test:gpu                              all tests on the best GPU, or on --device=NAME; lists skipped tests
 *
 * Each file is a process of its own, as many at a time as there are processors, the longest of the last run first. The CPU comes first:
 * a mistake that shows there ends the run in minutes, before software Vulkan compiles anything. Types are checked beside set-up and the
 * first tests. Files that have no test to run are not started. Only failures are shown, and of one file by itself all it prints.
 * scripts/test/tiers.ts says what runs in which tier, and `--seed` repeats the cases that an earlier run drew. Other arguments go to
 * `deno test`: `--filter NAME`, …
 *
 * @module
 */

import { findLibrary } from "../ffi/library.ts";
import { importArguments } from "./imports.ts";
import { resultsOf, type TestCase } from "./reliability/checks.ts";
import { writeResult } from "./reliability/results.ts";
import { setup } from "./setup.ts";
import { type Arguments, argumentsOf } from "./test/arguments.ts";
import { type Durations, longestFirst, readDurations, writeDurations } from "./test/durations.ts";
import { type Counts, runTests } from "./test/process.ts";
import { turnOf } from "./test/seed.ts";
import { type Run, runsOf, wholeRun } from "./test/tiers.ts";
import { type Undrawn, undrawnOf } from "./test/undrawn.ts";
import { validation } from "./test/validation.ts";
import { type Finished, run, testFiles, TOOLS } from "./tools.ts";

/** Processes that use a GPU at once: one for so many bytes of its memory, within these limits. Nine at once passed on an H200. */
const GPU_PROCESSES = { bytes: 16e9, least: 3, most: 6 } as const;
/** Files that are named at the end. */
const SLOWEST = 10;
/** Characters of what a failed test says that are repeated at the end. */
const MESSAGE = 400;
/** Runs that took fewer seconds the last time may have no test to run, so that is looked up before they start. */
const SHORT = 1.5;
/** Leaves out the tests that are another seed's. */
const SHARE_TESTS = "tests/support/share_tests.ts";
/** Waits at the end of a test for what a GPU does beside it. */
const SETTLE_TESTS = "tests/support/settle_tests.ts";

/** All runs of an invocation, added up. */
interface Total {
  passed: number;
  failed: number;
  readonly skipped: string[];
  readonly cases: TestCase[];
  /** Runs that failed, each with its failed tests and what they say. */
  readonly failures: string[];
  /** Seconds by {@link keyOf}. */
  readonly seconds: Record<string, number>;
}

/** What an invocation asks for, and the check of types if it has begun. */
interface Job extends Arguments {
  readonly types: Promise<Finished> | undefined;
}

/** The key of a duration. */
const keyOf = ({ pass, file }: Run): string => `${pass} ${file}`;

function addCounts(total: Total, job: Run, counts: Counts): void {
  const { file } = job;
  total.passed += counts.passed;
  total.failed += counts.failed;
  if (counts.failed > 0) {
    const failed = counts.cases.filter(({ outcome }) => outcome === "failed");
    const lines = failed.map(({ name, message = "" }) => `\n    ${name}: ${message.slice(0, MESSAGE)}`);
    total.failures.push(`${keyOf(job)}${lines.length > 0 ? lines.join("") : ": it ended before its report"}`);
  }
  total.skipped.push(...counts.skipped.map((title) => `${file}: ${title}`));
  total.cases.push(...counts.cases);
}

/** The counts of a run that was not started, by the tests that it ignores. */
function countsOf({ file }: Run, ignored: readonly string[]): Counts {
  const cases = ignored.map((name): TestCase => ({ file: file.replace(/^tests\//, ""), name, outcome: "skipped" }));
  return { passed: 0, failed: 0, skipped: ignored, cases };
}

/** Takes jobs from a list until it is empty, `workers` at a time. */
async function inParallel<T>(jobs: readonly T[], workers: number, work: (job: T) => Promise<void>): Promise<void> {
  const left = [...jobs];
  await Promise.all(Array.from({ length: workers }, async () => {
    for (let job = left.shift(); job !== undefined; job = left.shift()) await work(job);
  }));
}

/**
 * The check of all types, the same as that of `deno task check`, which takes its result over. It has a low priority: it takes what
 * set-up and the first tests leave of the processors. It ends with this program. An error is its result: nothing waits for it yet.
 */
async function checkTypes(): Promise<Finished> {
  const nice = Deno.build.os === "windows" ? [] : ["nice", "-n", "10"];
  const end = new AbortController();
  addEventListener("unload", () => end.abort());
  try {
    const { signal } = end;
    return await run([...nice, Deno.execPath(), "check", ...await importArguments(), "."], { signal });
  } catch (error) {
    return { ok: false, stdout: "", stderr: `the check of types did not start: ${error}` };
  }
}

/** Counts the check of types; errors are shown. */
function addTypes(total: Total, { ok, stdout, stderr }: Finished): void {
  console.log(`types: ${ok ? "right" : "wrong"}`);
  if (ok) return;
  console.log(`${stdout}\n${stderr}`);
  total.failed++;
  total.failures.push("types");
}

/** Vulkan devices of this machine that can be used, by name. Loads the library, so it comes after the build. */
async function vulkanDevices(): Promise<readonly { readonly name: string; readonly software: boolean }[]> {
  const { devices } = await import("../src/backend/devices.ts");
  return devices().filter((d) => d.usable && d.type !== "wasm").map((d) => ({
    name: d.name,
    software: d.type === "cpu",
  }));
}

/** The GPU that `--gpu` or `--device=NAME` means. Ends the program if there is none. */
async function gpuOf({ device }: Arguments): Promise<string> {
  if (device !== undefined) return device;
  const { defaultDevice } = await import("../src/backend/devices.ts");
  const name = defaultDevice();
  if ((await vulkanDevices()).some((d) => d.name === name && !d.software)) return name;
  console.error("test: this machine has no GPU that vkmx can use; `deno task devices` says why");
  Deno.exit(1);
}

/** How many processes use a GPU at once. */
async function gpuProcesses(device: string): Promise<number> {
  const { deviceMemory } = await import("../src/schedule/device_info.ts");
  const { bytes, least, most } = GPU_PROCESSES;
  return Math.max(least, Math.min(most, Math.floor(deviceMemory(device).total / bytes)));
}

/** Runs on one GPU: every file whole, with that device alone. */
async function testGpu(args: Job, files: readonly string[], device: string): Promise<Total> {
  const runs = files.map((file) => wholeRun(file));
  // Tests hold all devices against float32; where they mean another dtype, they name it.
  const env = { VKMX_DEVICE: device, VKMX_TEST_DEVICES: device, VKMX_TEST_TIER: "full", VKMX_DTYPE: "float32" };
  const flags = [`--preload=${SETTLE_TESTS}`, ...args.flags];
  return await testAll({ ...args, flags }, [runs], () => env, await gpuProcesses(device));
}

/** Runs a tier: the CPU, then Vulkan devices if there are some. */
async function testTier(args: Job, files: readonly string[]): Promise<Total> {
  const runs = files.flatMap((file) => runsOf(file, args.tier, args.seed));
  const names = (await vulkanDevices()).map(({ name }) => name);
  const layers = await validation();
  const tier = { VKMX_TEST_TIER: args.tier, VKMX_TEST_SEED: args.seed };
  const whole = names.length > 0 ? ["wasm", ...names].join() : "wasm";
  const from = turnOf(args.seed);
  const devicesOf = ({ pass, filter }: Run): Record<string, string> => ({
    ...tier,
    VKMX_TEST_DEVICES: pass === "cpu" ? "wasm" : filter.length === 0 ? whole : names.join(),
  });
  const envOf = (one: Run): Record<string, string> => ({
    ...devicesOf(one),
    ...one.validated ? layers : {},
    ...one.share > 1
      ? { VKMX_TEST_SHARE: String(one.share), VKMX_TEST_SHARE_FROM: String(from), VKMX_TEST_SHARE_OF: one.shareOf }
      : {},
    ...one.unoptimized ? { GALLIVM_PERF: "nopt" } : {},
    ...one.oneThread ? { VKMX_THREADS: "1" } : {},
  });
  const onCpu = runs.filter(({ pass }) => pass === "cpu");
  const onVulkan = runs.filter(({ pass, filter }) => pass === "vulkan" && (names.length > 0 || filter.length === 0));
  // A file by itself shows all it does; flags may choose other tests.
  const mayLookUp = files.length > 1 && args.flags.length === 0;
  const lookUp = async (runs: readonly Run[]): Promise<Undrawn> => await undrawnOf(runs, devicesOf(runs[0]), from);
  return await testAll(args, [onCpu, onVulkan], envOf, navigator.hardwareConcurrency, mayLookUp ? lookUp : undefined);
}

/** The runs that have no test to run, each with the tests that it ignores. Looks up files that `mayBe` one. */
async function undrawnRuns(
  passes: readonly (readonly Run[])[],
  mayBe: (run: Run) => boolean,
  lookUp: (runs: readonly Run[]) => Promise<Undrawn>,
): Promise<Undrawn> {
  const found = new Map<string, readonly string[]>();
  for (const pass of passes) {
    // A file that is one run chooses its devices itself.
    const runs = pass.filter((run) => (run.pass === "cpu" || run.filter.length > 0) && mayBe(run));
    if (runs.length === 0) continue;
    for (const [file, names] of await lookUp(runs)) found.set(keyOf({ ...runs[0], file }), names);
  }
  return found;
}

/**
 * Runs lists of files one after the other. A list begins when the one before has no file left to begin. With `lookUp`, files that have
 * no test to run are not started.
 */
async function testAll(
  { flags, types }: Job,
  passes: readonly (readonly Run[])[],
  envOf: (run: Run) => Record<string, string>,
  processes: number,
  lookUp?: (runs: readonly Run[]) => Promise<Undrawn>,
): Promise<Total> {
  const total: Total = { passed: 0, failed: 0, skipped: [], cases: [], failures: [], seconds: {} };
  const durations: Durations = await readDurations();
  const ordered = passes.flatMap((runs) => longestFirst(runs, keyOf, durations));
  const show = ordered.length === 1;
  const isShort = (run: Run): boolean => (durations[keyOf(run)] ?? Infinity) < SHORT;
  const undrawn = Promise.withResolvers<Undrawn>();
  const lookUpAll = async (): Promise<void> =>
    undrawn.resolve(lookUp === undefined ? new Map() : await undrawnRuns(passes, isShort, lookUp));
  const jobs: readonly (Run | "undrawn")[] = ["undrawn", ...ordered];
  const checked = types?.then((result) => addTypes(total, result));
  await inParallel(jobs, processes, async (job) => {
    if (job === "undrawn") return await lookUpAll();
    const left = isShort(job) ? (await undrawn.promise).get(keyOf(job)) : undefined;
    if (left !== undefined) {
      addCounts(total, job, countsOf(job, left));
      console.log(`${keyOf(job)}: not started, ${left.length} skipped`);
      return;
    }
    const start = performance.now();
    const name = keyOf(job).replaceAll(/\btests\/|_test\.ts$/g, "").replaceAll(/[^\w]+/g, "-");
    const preload = job.share > 1 ? [`--preload=${SHARE_TESTS}`] : [];
    const filter = flags.includes("--filter") ? [] : job.filter;
    const all = ["--no-check", ...preload, ...flags, ...filter];
    const counts = await runTests({ name, file: job.file, flags: all, env: envOf(job), show });
    const seconds = (performance.now() - start) / 1000;
    total.seconds[keyOf(job)] = Math.round(seconds * 10) / 10;
    addCounts(total, job, counts);
    const { passed, failed, skipped } = counts;
    console.log(
      `${keyOf(job)}: ${passed} passed, ${failed} failed, ${skipped.length} skipped (${seconds.toFixed(1)} s)`,
    );
  });
  await checked;
  await writeDurations(total.seconds, durations);
  return total;
}

/** Where the time went. */
function printSlowest(seconds: Durations): void {
  const slowest = Object.entries(seconds).sort((a, b) => b[1] - a[1]).slice(0, SLOWEST);
  console.log(`slowest: ${slowest.map(([key, value]) => `${key} ${value} s`).join(", ")}`);
}

if (import.meta.main) {
  const args = argumentsOf(Deno.args);
  const { gpu, tier, seed, named } = args;
  const files = named.length > 0 ? named : testFiles();
  // Downloads, and steps of the build that wait for each other, leave processors idle.
  const types = args.checked ? undefined : checkTypes();
  // A machine that runs a GPU need not be one that builds.
  if (args.setup && (!gpu || findLibrary() === undefined)) await setup();
  await Deno.mkdir(TOOLS, { recursive: true });
  const device = gpu ? await gpuOf(args) : undefined;
  if (device === undefined) console.log(`tier ${tier}, seed ${seed} (repeat with --seed ${seed})`);
  const total = device === undefined
    ? await testTier({ ...args, types }, files)
    : await testGpu({ ...args, types }, files, device);
  if (device !== undefined && total.skipped.length > 0) {
    console.log(`skipped on ${device}:\n  ${total.skipped.sort().join("\n  ")}`);
  }
  const lacking = total.skipped.filter((title) => title.includes(" (skipped: "));
  if (device === undefined && lacking.length > 0) {
    console.log(`skipped on this machine:\n  ${lacking.sort().join("\n  ")}`);
  }
  if (files.length > 1) printSlowest(total.seconds);
  if (total.failures.length > 0) console.log(`failed:\n  ${total.failures.join("\n  ")}`);
  if (device === undefined && args.whole && tier !== "quick") {
    await writeResult("test", "deno task test", resultsOf(total.cases));
  }
  console.log(`${total.passed} passed, ${total.failed} failed`);
  Deno.exit(total.failed > 0 ? 1 : 0);
}
