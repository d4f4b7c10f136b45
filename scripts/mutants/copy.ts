/**
 * A copy of the project under .zig-cache, in which one mistake at a time is planted, built and tested.
 *
 * The copy keeps its build cache: the first build takes a minute or two of a processor, those of single mistakes seconds.
 *
 * @module
 */

import { lastLine } from "../log.ts";
import { exists, findZig, ROOT, run, TOOLS, ZIG_VERSION } from "../tools.ts";
import type { Mutant } from "./mutant.ts";

/** Which tests of a file run: those of every change, or all of them. */
export const TIERS = ["gate", "full"] as const;

/** One of {@link TIERS}. */
export type Tier = typeof TIERS[number];

/** How a run of tests ended. */
export interface TestRun {
  readonly ok: boolean;
  readonly seconds: number;
  /** Its output. */
  readonly output: string;
}

/** Files that are not of the project's source. */
const LEFT_OUT: ReadonlySet<string> = new Set([
  ...[".git", ".tools", ".zig-cache", "zig-out", "node_modules", "models", "coverage"],
]);

/** Minutes after which a run of one test file counts as failed: a mistake may make it run for ever. */
const MAX_MINUTES = 10;

type Step = "gen" | "install";

/** Steps of the build that a change of a file asks for: the first row that matches its path. */
const BUILDS: readonly { readonly files: RegExp; readonly steps: readonly Step[] }[] = [
  {
    // Parts that reach TypeScript: tables, and the modules of the CPU.
    files: /^(runtime-c\/wasm\/|runtime-c\/vk_runtime\.h$|shaders\/include\/[\w/]+\.h$|shaders\/\w+\.zon$)/,
    steps: ["gen", "install"],
  },
  { files: /^(runtime-c|shaders)\//, steps: ["install"] },
];

/** The steps of `zig build` that must run after a change of a file, by its path from the root. */
export function stepsOf(file: string): readonly Step[] {
  return BUILDS.find(({ files }) => files.test(file))?.steps ?? [];
}

/** The text with the mistake in it. Throws where the mistake does not fit the text. */
export function planted(text: string, { name, file, find, replace }: Mutant): string {
  const [before, after, ...more] = text.split(find);
  if (after !== undefined && more.length === 0) return before + replace + after;
  throw new Error(`"${name}" fits ${file} in ${more.length + (after === undefined ? 0 : 1)} places, expected one`);
}

/** Process groups of tests that run. */
const running = new Set<number>();
let stopped = false;

/** Ends all tests that run, which do not get the Ctrl-C of this process, and lets no other one begin. */
export function stopTests(): void {
  stopped = true;
  for (const pid of running) kill(pid);
}

function kill(pid: number): void {
  try {
    Deno.kill(-pid, "SIGKILL");
  } catch {
    // it has ended
  }
}

/** A copy of the project. */
export class Copy {
  readonly #path: string;
  readonly #zig: readonly string[];
  /** Steps whose results are older than the files. */
  #stale = new Set<Step>();
  #restore: (() => Promise<void>) | undefined;

  private constructor(path: string, zig: readonly string[]) {
    this.#path = path;
    this.#zig = zig;
  }

  /** Makes copy `number`, anew but for its build cache, and builds it. */
  static async make(number: number): Promise<Copy> {
    const zig = await findZig();
    if (!zig) throw new Error(`Zig ${ZIG_VERSION} was not found: run \`deno task setup\``);
    const copy = new Copy(`${ROOT}.zig-cache/mutants/${number}`, zig);
    await Deno.mkdir(copy.#path, { recursive: true });
    for await (const { name } of Deno.readDir(copy.#path)) {
      if (!LEFT_OUT.has(name)) await Deno.remove(`${copy.#path}/${name}`, { recursive: true });
    }
    for await (const { name } of Deno.readDir(ROOT)) {
      if (!LEFT_OUT.has(name)) await copyTo(`${ROOT}${name}`, `${copy.#path}/${name}`);
    }
    copy.#stale = new Set(["gen", "install"]); // an earlier run may have ended with a mistake in it
    const failure = await copy.#build();
    if (failure !== undefined) throw new Error(`The project does not build: ${failure}`);
    return copy;
  }

  /** Plants a mistake and builds what depends on it. False if that does not build. */
  async plant(mutant: Mutant): Promise<boolean> {
    const path = `${this.#path}/${mutant.file}`;
    const text = await Deno.readTextFile(path);
    await Deno.writeTextFile(path, planted(text, mutant));
    const steps = stepsOf(mutant.file);
    for (const step of steps) this.#stale.add(step);
    this.#restore = async () => {
      await Deno.writeTextFile(path, text);
      for (const step of steps) this.#stale.add(step);
    };
    return await this.#build() === undefined;
  }

  /** Takes the mistake out again; what depends on it is built when it is needed. */
  async restore(): Promise<void> {
    await this.#restore?.();
    this.#restore = undefined;
  }

  /**
   * Runs a test file of a tier, in the device passes that the tier has; rotating cases are drawn by `seed`. Throws where
   * {@link stopTests} ends it.
   */
  async test(file: string, tier: Tier, seed: number): Promise<TestRun> {
    const failure = await this.#build();
    if (failure !== undefined) throw new Error(`The project does not build: ${failure}`);
    if (stopped) throw new Error("The run was stopped");
    // Files that one mistake left there must not serve the next one.
    const cache = `${this.#path}/.zig-cache/vkmx`;
    if (await exists(cache)) await Deno.remove(cache, { recursive: true });
    const start = performance.now();
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "-A", "--no-lock", "scripts/test.ts", "--no-setup", "--no-check"],
        ...["--tier", tier, "--seed", String(seed), file],
      ],
      cwd: this.#path,
      env: { NO_COLOR: "1", VKMX_LIBRARY: "", VKMX_CACHE: cache },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      detached: true, // a group of its own, which ends with all the processes that tests have started
    }).spawn();
    running.add(child.pid);
    const timer = setTimeout(() => kill(child.pid), MAX_MINUTES * 60_000);
    const { success, stdout, stderr } = await child.output();
    clearTimeout(timer);
    kill(child.pid); // processes that a test left
    running.delete(child.pid);
    if (stopped) throw new Error("The run was stopped");
    const output = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("\n");
    return { ok: success, seconds: (performance.now() - start) / 1000, output };
  }

  /** Builds stale files. Returns the last line of an error. */
  async #build(): Promise<string | undefined> {
    if (this.#stale.size === 0) return undefined;
    const own = `${TOOLS}/glslc/glslc`;
    const env = await exists(own) && !Deno.env.has("GLSLC") ? { GLSLC: own } : undefined;
    const { ok, stderr } = await run([...this.#zig, "build", ...this.#stale], { cwd: this.#path, env });
    if (!ok) return lastLine(stderr) || "zig ended without saying why: was it stopped, or is memory short?";
    this.#stale.clear();
  }
}

/** Copies a file or folder. */
async function copyTo(from: string, to: string): Promise<void> {
  const { isFile, isDirectory } = await Deno.stat(from);
  if (isFile) return await Deno.copyFile(from, to);
  if (!isDirectory) return;
  await Deno.mkdir(to);
  for await (const { name } of Deno.readDir(from)) await copyTo(`${from}/${name}`, `${to}/${name}`);
}
