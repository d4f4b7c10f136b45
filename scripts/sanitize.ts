/**
 * `deno task test:sanitize`: the native library built by gcc with its address and undefined-behaviour sanitizers, on Linux.
 *
 * First each planted bug must be reported, else nothing that follows means anything. Then the tests of the FFI layer run, then forged
 * calls, then every allocation of the host fails in turn. `--calls N` and `--seed N` set the forged calls; file names run those test
 * files instead. Closes with the line "N passed, N failed".
 *
 * @module
 */

import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { importArguments } from "./imports.ts";
import { lastLine } from "./log.ts";
import { writeResult } from "./reliability/results.ts";
import { findZig, type Finished, ROOT, run, TOOLS, ZIG_VERSION } from "./tools.ts";

const FLAGS = {
  "calls": { value: "N", help: "forged calls (100000)", range: [1, 1e9], whole: true },
  "seed": { value: "N", help: "of the forged calls (1)", range: [0, 2 ** 31], whole: true },
} as const;

const ABOUT = `Runs the FFI tests, forged calls and failing allocations against a build of the native library with
AddressSanitizer and UndefinedBehaviorSanitizer. Needs gcc with libasan and libubsan.`;

const LIBRARY = `${ROOT}zig-out/sanitize/libvk_runtime.so`;

/** The tests of the library below the backends. */
const FFI_TESTS = ["ffi", "ffi_plan", "ffi_pipelines", "ffi_faults"].map((name) => `tests/runtime/${name}_test.ts`);

/** The bugs that vkrt_test_plant() plants, by number, and their names in a report. */
const PLANTED = [
  ["a read after a block", "heap-buffer-overflow"],
  ["a read of a freed block", "heap-use-after-free"],
  ["a write before a block", "heap-buffer-overflow"],
  ["a sum that overflows", "signed integer overflow"],
  ["a shift by too much", "shift exponent"],
  ["a load that is not aligned", "misaligned address"],
] as const;

const PLANT = `const [path, which] = Deno.args;
const type = { parameters: ["u32"], result: "i32" };
Deno.dlopen(path, { vkrt_test_plant: type }).symbols.vkrt_test_plant(Number(which));`;

/** Compiles the library. Throws where the tools are missing or the code does not compile. */
async function build(): Promise<void> {
  const zig = await findZig();
  if (!zig) throw new Error(`Zig ${ZIG_VERSION} was not found: run \`deno task setup\``);
  await Deno.mkdir(`${ROOT}zig-out/sanitize`, { recursive: true });
  const folders = ["runtime-c", "runtime-c/device", "runtime-c/plan"];
  const sources = folders.flatMap((folder) =>
    Array.from(Deno.readDirSync(ROOT + folder), ({ name }) => `${folder}/${name}`).filter((path) => path.endsWith(".c"))
  ).sort();
  const gcc = [
    ...["gcc", "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-shared", "-fPIC", "-fvisibility=hidden"],
    ...["-D_GNU_SOURCE=", "-D_FILE_OFFSET_BITS=64", "-Wall", "-Wextra", "-Werror"],
    ...["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-include", "runtime-c/testing/failing.h"],
    ...["-Iruntime-c", ...sources, "runtime-c/testing/failing.c", "zig-out/table/kernel_table.o"],
    ...["-ldl", "-lpthread", "-o", `${LIBRARY}.partial`],
  ];
  for (const command of [[...zig, "build", "table"], gcc]) {
    const { ok, stderr } = await run(command);
    if (!ok) throw new Error(`${command[0]} failed: ${lastLine(stderr)}`);
  }
  await Deno.rename(`${LIBRARY}.partial`, LIBRARY);
}

/** The environment in which a program finds that library and the sanitizers. */
async function environment(reports: string): Promise<Record<string, string>> {
  const libraries: string[] = [];
  for (const name of ["libasan.so", "libubsan.so"]) {
    const path = (await run(["gcc", `-print-file-name=${name}`])).stdout.trim();
    if (!path.includes("/")) throw new Error(`gcc has no ${name}: install gcc with its sanitizers (Debian: gcc)`);
    libraries.push(path);
  }
  return {
    LD_PRELOAD: libraries.join(" "),
    VKMX_LIBRARY: LIBRARY,
    NO_COLOR: "1",
    // Deno itself leaks blocks; those of the library are counted where its allocations fail.
    ASAN_OPTIONS: `detect_leaks=0:exitcode=99:log_path=${reports}/report`,
    UBSAN_OPTIONS: `print_stacktrace=1:exitcode=99:log_path=${reports}/report`,
  };
}

/** The reports of all programs so far, which go. */
async function takeReports(folder: string): Promise<string[]> {
  const texts: string[] = [];
  for (const { name } of Deno.readDirSync(folder)) {
    texts.push(await Deno.readTextFile(`${folder}/${name}`));
    await Deno.remove(`${folder}/${name}`);
  }
  return texts;
}

const PROGRAM = { name: "test:sanitize", operand: "[test files]", about: ABOUT, flags: FLAGS };

await runMain(PROGRAM, async ({ calls = 100_000, seed = 1 }, files) => {
  if (Deno.build.os !== "linux") throw new Error("The sanitizers are used on Linux only");
  await Deno.mkdir(TOOLS, { recursive: true });
  await build();
  const folder = await Deno.makeTempDir({ prefix: "vkmx-sanitize-" });
  const reports = `${folder}/reports`;
  await Deno.mkdir(reports);
  const env = await environment(reports);
  const deno = [Deno.execPath()];
  const imports = await importArguments();
  let passed = 0, failed = 0;
  const tell = (ok: boolean, name: string, output = ""): void => {
    if (ok) passed++;
    else failed++;
    print(`${ok ? "ok    " : "FAILED"} ${name}\n${ok ? "" : output}`);
  };

  try {
    await Deno.writeTextFile(`${folder}/plant.ts`, PLANT);
    for (const [number, [name, report]] of PLANTED.entries()) {
      const command = [...deno, "run", "-A", "--no-lock", `${folder}/plant.ts`, LIBRARY, `${number}`];
      const { ok, stderr } = await run(command, { env });
      const text = [...await takeReports(reports), stderr].join("\n"); // the second sanitizer writes to stderr
      tell(!ok && text.includes(report), `${name} is reported: ${report}`, text);
    }
    if (failed > 0) throw new Error("The sanitizers do not report planted bugs: nothing else would mean anything");

    const work = async (name: string, args: readonly string[]): Promise<Finished> => {
      const result = await run([...deno, ...args], { env });
      const texts = await takeReports(reports);
      const silent = texts.length === 0 && !result.stderr.includes(": runtime error: ");
      tell(result.ok && silent, name, `${texts.join("\n")}${result.stdout}\n${result.stderr}`);
      return result;
    };
    for (const file of files.length > 0 ? files : FFI_TESTS) {
      const { stdout } = await work(file, ["test", "-A", "--no-check", ...imports, file]);
      if (!/^ok \| [1-9]/m.test(stdout)) tell(false, `${file} ran no test`);
    }
    if (files.length === 0) {
      const program = (name: string): string[] => ["run", "-A", "--no-check", ...imports, `tests/support/${name}`];
      await work(`${calls} forged, stale and NULL calls, seed ${seed}`, [
        ...program("forged_calls.ts"),
        `${calls}`,
        `${seed}`,
      ]);
      const { stdout } = await work("every allocation of the host fails in turn", program("failing_allocations.ts"));
      print(stdout.replaceAll(/^(?=.)/gm, "       "));
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  if (files.length === 0) {
    const measured =
      `${calls.toLocaleString("en")} forged calls, every host allocation failed in turn, ${FFI_TESTS.length} test ` +
      `files: ${failed} reports`;
    await writeResult("test-sanitize", "deno task test:sanitize", [{ check: 9, measured, ok: failed === 0 }]);
  }
  print(`${passed} passed, ${failed} failed\n`);
  return failed > 0 ? 1 : 0;
});
