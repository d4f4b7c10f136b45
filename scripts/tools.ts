/**
 * The common part of the scripts: the repository's root, running programs, and finding Zig.
 *
 * @module
 */

import { fileURLToPath } from "node:url";

/** The Zig that build.zig is written for. */
export const ZIG_VERSION = "0.16.0";

/** Absolute path of the repository, with a closing separator. */
export const ROOT: string = fileURLToPath(new URL("../", import.meta.url));

/** Folder for tools that setup provides; git ignores it. */
export const TOOLS: string = `${ROOT}.tools`;

/** All test files, from the root on, sorted. */
export function testFiles(folder: string = "tests"): string[] {
  return Array.from(Deno.readDirSync(ROOT + folder)).flatMap(({ name, isDirectory }) =>
    isDirectory ? testFiles(`${folder}/${name}`) : name.endsWith("_test.ts") ? [`${folder}/${name}`] : []
  ).sort();
}

/** The output of a finished program. */
export interface Finished {
  /** Whether it exited with 0. */
  readonly ok: boolean;
  /** Empty when the output was shown. */
  readonly stdout: string;
  /** Empty when the output was shown. */
  readonly stderr: string;
}

/** How to run a program. */
export interface RunOptions {
  /** Working directory; the repository when left out. */
  readonly cwd?: string;
  /** Ends the program. */
  readonly signal?: AbortSignal;
  /** Added to the environment. */
  readonly env?: Record<string, string>;
  /** Shows the output instead of collecting it. */
  readonly show?: boolean;
}

/** Runs a program to its end. A program that is not there counts as failed. */
export async function run(command: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const { cwd = ROOT, env, show = false, signal } = options;
  const output = show ? "inherit" : "piped";
  const settings = { args: command.slice(1), cwd, env, signal, stdin: "null", stdout: output, stderr: output } as const;
  try {
    const result = await new Deno.Command(command[0], settings).output();
    const text = (name: "stdout" | "stderr"): string => show ? "" : new TextDecoder().decode(result[name]);
    return { ok: result.success, stdout: text("stdout"), stderr: text("stderr") };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return { ok: false, stdout: "", stderr: `${command[0]} was not found` };
    throw error;
  }
}

/** Whether a file or folder is there. */
export async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}

/** The flag of `zig build` for so many steps at a time, default one a processor. It runs one step fewer than it is given jobs. */
export function zigJobs(steps: number = navigator.hardwareConcurrency): string {
  return `-j${steps + 1}`;
}

/** The command that starts Zig {@link ZIG_VERSION}: `$ZIG`, setup's own, the one on the PATH, or PyPI's. */
export async function findZig(): Promise<readonly string[] | undefined> {
  const own = `${TOOLS}/zig/ziglang/zig${Deno.build.os === "windows" ? ".exe" : ""}`;
  const chosen = Deno.env.get("ZIG");
  const candidates = chosen ? [[chosen]] : [[own], ["zig"], ["python3", "-m", "ziglang"], ["python", "-m", "ziglang"]];
  for (const command of candidates) {
    const { ok, stdout } = await run([...command, "version"]);
    if (ok && stdout.trim() === ZIG_VERSION) return command;
  }
  return undefined;
}
