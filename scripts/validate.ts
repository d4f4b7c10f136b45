/**
 * `deno task test:validate`: the tests on Vulkan under the Khronos validation layers, which must not say a word.
 *
 * All tests run under the core and synchronization checks. Those of ops and kernels also run under the GPU-assisted
 * ones, which see every access of a shader. Messages are counted in a file that each process adds to
 * (VKMX_VALIDATION_LOG), so that none is lost in the output of a program. Planted mistakes come first: each must be
 * counted. File names choose tests. Closes with the line "N passed, N failed".
 *
 * @module
 */

import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { importArguments } from "./imports.ts";
import { type ResultRow, writeResult } from "./reliability/results.ts";
import { runTests } from "./test/process.ts";
import { run, testFiles, TOOLS } from "./tools.ts";

const LAYER = { VK_INSTANCE_LAYERS: "VK_LAYER_KHRONOS_validation" };

/** Which checks there are, their rows in docs/reliability.md, what each must notice, and the tests that run under it. */
const PASSES = [
  {
    name: "core and synchronization checks",
    row: 7,
    env: { VK_LAYER_ENABLES: "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT" },
    planted: { memory: "VUID-", barrier: "SYNC-HAZARD-" },
    tests: /_test\.ts$/,
  },
  {
    name: "GPU-assisted checks",
    row: 8,
    env: { VK_LAYER_ENABLES: "VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT", VKMX_QUEUE_IDLE: "1" },
    planted: { bounds: "out of bounds" },
    tests: /\/(ops\/(ops|tensor\/views|indexing\/embedding_lookup)|kernels\/\w+)_test\.ts$/,
  },
] as const;

const ABOUT = `Runs the tests on Vulkan devices under the Khronos validation layers and counts what they say.
Slow: the GPU-assisted checks take minutes a file.`;

const FLAGS = {
  "device": { value: "NAME", help: "Vulkan device to test (the first software one, else vulkan:0)" },
  "list": { help: "print the files of each pass and end" },
} as const;

/** Lines of the log: instances that were made, and messages. */
async function takeLog(path: string): Promise<{ readonly instances: number; readonly messages: string[] }> {
  const text = await Deno.readTextFile(path).catch(() => "");
  await Deno.remove(path).catch(() => {});
  const lines = text.split("\n").filter((line) => line !== "");
  const messages = lines.filter((line) => !line.startsWith("instance\t"));
  return { instances: lines.length - messages.length, messages };
}

/** The device to test on. */
async function deviceOf(name: string | undefined): Promise<string> {
  const { devices } = await import("../src/backend/devices.ts");
  const list = devices().filter((d) => d.usable && d.type !== "wasm");
  const device = name === undefined ? list.find((d) => d.type === "cpu") ?? list[0] : list.find((d) => d.name === name);
  if (device) return device.name;
  throw new Error(
    name === undefined ? "There is no Vulkan device: `deno task setup` provides one" : `${name} is no Vulkan device`,
  );
}

const PROGRAM = { name: "test:validate", operand: "[test files]", about: ABOUT, flags: FLAGS };

await runMain(PROGRAM, async ({ device: named, list = false }, chosen) => {
  const filesOf = (tests: RegExp): string[] => {
    const all = testFiles().filter((path) => tests.test(path));
    return chosen.length === 0 ? all : all.filter((path) => chosen.some((name) => path.endsWith(name)));
  };
  if (list) {
    for (const { name, tests } of PASSES) print(`${name}:\n  ${filesOf(tests).join("\n  ")}\n`);
    return 0;
  }
  const device = await deviceOf(named);
  await Deno.mkdir(TOOLS, { recursive: true });
  const log = `${await Deno.makeTempDir({ prefix: "vkmx-validate-" })}/log`;
  const imports = await importArguments();
  const total = { passed: 0, failed: 0 };
  const rows: ResultRow[] = [];
  const tell = (ok: boolean, line: string, messages: readonly string[] = []): void => {
    print(`${ok ? "ok    " : "FAILED"} ${line}\n`);
    for (const message of messages.slice(0, 5)) print(`       ${message.slice(0, 400)}\n`);
  };
  for (const { name, row, env: checks, planted, tests } of PASSES) {
    const env = { ...LAYER, ...checks, VKMX_DEVICE: device, VKMX_TEST_DEVICES: device, VKMX_VALIDATION_LOG: log };
    print(`${name} on ${device}\n`);
    for (const [mistake, id] of Object.entries(planted)) {
      await run([Deno.execPath(), "run", "-A", ...imports, "tests/support/planted/planted_violations.ts", mistake], {
        env,
      });
      const { messages } = await takeLog(log);
      const counted = messages.filter((message) => message.includes(id)).length;
      tell(counted > 0, `planted mistake "${mistake}": ${counted} messages`, counted > 0 ? [] : messages);
      if (counted === 0) {
        throw new Error(
          `The ${name} do not notice a planted mistake: are the layers installed (vulkan-validationlayers)?`,
        );
      }
      total.passed++;
    }
    const sum = { tests: 0, instances: 0, messages: 0, idle: [] as string[] };
    for (const file of filesOf(tests)) {
      const start = performance.now();
      const { passed, failed, skipped } = await runTests({
        name: "validate",
        file,
        flags: ["--no-check"],
        env,
        show: false,
      });
      const { instances, messages } = await takeLog(log);
      const seconds = ((performance.now() - start) / 1000).toFixed(0);
      const counts = `${passed} passed, ${failed} failed, ${skipped.length} skipped`;
      tell(
        failed === 0 && messages.length === 0,
        `${file}: ${counts}; ${messages.length} messages in ${instances} processes (${seconds} s)`,
        messages,
      );
      total.passed += passed;
      total.failed += failed + messages.length;
      sum.tests += passed + failed;
      sum.instances += instances;
      sum.messages += messages.length;
      if (instances === 0) sum.idle.push(file);
    }
    print(`${name}: ${sum.tests} tests, ${sum.instances} processes used Vulkan, ${sum.messages} messages\n`);
    const measured = `${sum.tests} tests in ${sum.instances} processes that used Vulkan: ${sum.messages} messages`;
    rows.push({ check: row, measured, ok: sum.messages === 0 });
    if (sum.idle.length > 0) print(`without Vulkan: ${sum.idle.join(", ")}\n`);
  }
  await Deno.remove(log.replace(/\/log$/, ""), { recursive: true });
  if (chosen.length === 0) await writeResult("test-validate", "deno task test:validate", rows);
  print(`${total.passed} passed, ${total.failed} failed\n`);
  return total.failed > 0 ? 1 : 0;
});
