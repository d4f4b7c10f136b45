/**
 * `deno task test`: sets the machine up, runs the tests, and closes with the line "N passed, N failed".
 * `deno task test:gpu`: runs them on one real device, the best one or `--device=NAME`, and lists what was skipped there.
 *
 * Other arguments go to `deno test`: file names, `--filter`, … Types are checked once; then each file is a process of its own,
 * as many at a time as there are processors (compiling pipelines takes most of the time, in one thread), and only failures are
 * shown. One file by itself shows all it prints. Software Vulkan runs under the validation layers, with synchronization checks,
 * where they are installed. On a GPU a few processes run at a time: compiling pipelines in many at once can exhaust a driver.
 *
 * @module
 */

import { findLibrary } from "../ffi/library.ts";
import { importArguments } from "./imports.ts";
import { casesOf, rowsOf, type TestCase } from "./reliability_checks.ts";
import { writeResult } from "./results.ts";
import { setup } from "./setup.ts";
import { exists, run, testFiles, TOOLS } from "./tools.ts";

const LAYER = "VkLayer_khronos_validation.json";
const LAYER_FOLDERS = ["/usr/share", "/usr/local/share", "/etc", "/opt/homebrew/share"];
/** Most processes that use a GPU at once. */
const PROCESSES = 3;
/** Files that take minutes: they start first, so that none of them runs on alone at the end. */
const LONG = /\/(ops\/ops|transforms\/transforms|llm\/(fused|batch|chunk)\w+)_test\.ts$/;

/** Environment that switches the validation layers on; empty where they are not installed. */
async function validation(): Promise<Record<string, string>> {
  const paths = LAYER_FOLDERS.map((folder) => `${folder}/vulkan/explicit_layer.d/${LAYER}`);
  const found = await Promise.all(paths.map(exists));
  if (!found.includes(true)) {
    console.error("test: the Vulkan validation layers are not installed; Vulkan runs without them");
    return {};
  }
  return {
    VK_INSTANCE_LAYERS: "VK_LAYER_KHRONOS_validation",
    VK_LAYER_ENABLES: "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
  };
}

/** What a run of `deno test` gave. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  /** Names of tests that were ignored. */
  readonly skipped: readonly string[];
  /** All tests and how they ended. */
  readonly cases: readonly TestCase[];
}

/** Runs `deno test` on `args`, which say what to run; a run that ended before any test is one failure. */
export async function test(
  name: string,
  args: readonly string[],
  env: Record<string, string>,
  show: boolean,
): Promise<Counts> {
  const report = `${TOOLS}/junit-${name}.xml`;
  await Deno.remove(report).catch(() => {});
  const command = [Deno.execPath(), "test", "-A", ...await imports, `--junit-path=${report}`, ...args];
  const { ok, stdout, stderr } = await run(command, { env, show });
  const text = await Deno.readTextFile(report).catch(() => "");
  await Deno.remove(report).catch(() => {});
  const head = /<testsuites [^>]*>/.exec(text)?.[0] ?? "";
  const number = (key: string): number => Number(new RegExp(` ${key}="(\\d+)"`).exec(head)?.[1] ?? 0);
  const cases = casesOf(text);
  const skipped = cases.filter(({ outcome }) => outcome === "skipped").map((one) => one.name);
  const failed = number("failures") + number("errors");
  if (!ok && !show) console.log(`${stdout}\n${stderr}`);
  return {
    passed: number("tests") - failed - skipped.length,
    failed: failed === 0 && !ok ? 1 : failed,
    skipped,
    cases,
  };
}

/** The tests that an argument names, a file or all of a folder; undefined where it names none. */
function filesOf(path: string): readonly string[] | undefined {
  if (path.endsWith(".ts")) return [path];
  try {
    return testFiles(path.replace(/\/$/, ""));
  } catch {
    return undefined;
  }
}

/** Flags with their values, in their order, and the files that are named; ends the program where an argument is neither. */
function argumentsOf(
  args: readonly string[],
): { readonly flags: readonly string[]; readonly named: readonly string[] } {
  const flags: string[] = [];
  const named: string[] = [];
  for (const [i, arg] of args.entries()) {
    const files = filesOf(arg);
    if (arg.startsWith("-") || (!files && args[i - 1]?.startsWith("-"))) flags.push(arg);
    else if (files) named.push(...files);
    else {
      console.error(
        `test: ${arg} is neither a file that ends in .ts nor a folder of the repository, such as tests/ops`,
      );
      Deno.exit(1);
    }
  }
  return { flags, named };
}

/** Whether types fit; what does not is shown. */
async function checkTypes(files: readonly string[]): Promise<boolean> {
  const { ok, stdout, stderr } = await run([Deno.execPath(), "check", ...await imports, ...files]);
  if (!ok) console.log(`${stdout}\n${stderr}`);
  return ok;
}

/** Runs every file by itself, `processes` at a time. */
async function testEach(
  files: readonly string[],
  flags: readonly string[],
  env: Record<string, string>,
  processes: number,
): Promise<Counts> {
  const total = { passed: 0, failed: 0, skipped: [] as string[], cases: [] as TestCase[] };
  if (!flags.includes("--no-check") && !await checkTypes(files)) return { ...total, failed: 1 };
  const left = [...files.filter((file) => LONG.test(file)), ...files.filter((file) => !LONG.test(file))];
  const work = async (): Promise<void> => {
    for (let file = left.shift(); file; file = left.shift()) {
      const start = performance.now();
      const name = file.replaceAll(/^tests\/|_test\.ts$/g, "").replaceAll("/", "-");
      const { passed, failed, skipped, cases } = await test(
        name,
        ["--no-check", ...flags, file],
        env,
        files.length === 1,
      );
      const seconds = ((performance.now() - start) / 1000).toFixed(1);
      console.log(`${file}: ${passed} passed, ${failed} failed, ${skipped.length} skipped (${seconds} s)`);
      total.passed += passed;
      total.failed += failed;
      total.skipped.push(...skipped.map((title) => `${file}: ${title}`));
      total.cases.push(...cases);
    }
  };
  await Promise.all(Array.from({ length: processes }, work));
  return total;
}

/** The best GPU of this machine. */
async function bestGpu(): Promise<string> {
  const { defaultDevice, devices } = await import("../src/backend/devices.ts"); // looks for the library: after setup
  const name = defaultDevice();
  if (devices().some((d) => d.name === name && d.type !== "cpu" && d.type !== "wasm")) return name;
  console.error("test: this machine has no GPU that vkmx can use; `deno task devices` says why");
  Deno.exit(1);
}

const imports = importArguments();

if (import.meta.main) {
  const gpu = Deno.args.find((arg) => arg === "--gpu" || arg.startsWith("--device="));
  const args = Deno.args.filter((arg) => arg !== "--gpu" && !arg.startsWith("--device="));
  if (!gpu || findLibrary() === undefined) await setup(); // a machine that runs a GPU need not be one that builds
  await Deno.mkdir(TOOLS, { recursive: true });
  const device = gpu === "--gpu" ? await bestGpu() : gpu?.split("=")[1];
  const { flags, named } = argumentsOf(args);
  const env = device ? { VKMX_DEVICE: device, VKMX_TEST_DEVICES: device } : await validation();
  const processes = device ? PROCESSES : navigator.hardwareConcurrency;
  const files = named.length > 0 ? named : testFiles();
  const { passed, failed, skipped, cases } = await testEach(files, flags, env, processes);
  if (device && skipped.length > 0) console.log(`skipped on ${device}:\n  ${[...skipped].sort().join("\n  ")}`);
  const lacking = skipped.filter((title) => title.includes(" (skipped: "));
  if (!device && lacking.length > 0) console.log(`skipped on this machine:\n  ${[...lacking].sort().join("\n  ")}`);
  if (!device && args.length === 0) await writeResult("test", "deno task test", rowsOf(cases));
  console.log(`${passed} passed, ${failed} failed`);
  Deno.exit(failed > 0 ? 1 : 0);
}
