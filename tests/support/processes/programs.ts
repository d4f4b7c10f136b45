/**
 * Programs of their own, for what depends on the environment, on permissions or on how a program ends.
 *
 * @module
 */

import { findLibrary } from "../../../ffi/library.ts";
import { ROOT } from "../../../scripts/tools.ts";

/** The native library, if there is one. */
export const LIBRARY: string | undefined = findLibrary();

/** For tests that do nothing without it. */
export const NEEDS_LIBRARY: { readonly ignore: boolean } = { ignore: LIBRARY === undefined };

/** The output of a program. */
export interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs module code that may import from the project's root as "../../". */
export async function runCode(
  code: string,
  env: Record<string, string> = {},
  flags: string[] = ["-A"],
): Promise<Finished> {
  const path = `${ROOT}.tools/program_${crypto.randomUUID()}.ts`;
  await Deno.mkdir(`${ROOT}.tools`, { recursive: true });
  await Deno.writeTextFile(path, code.replaceAll('from "./', 'from "../'));
  try {
    const result = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--no-lock", ...flags, path],
      env: { NO_COLOR: "1", VKMX_DEVICE: "", VKMX_LIBRARY: LIBRARY ?? "", ...env },
    }).output();
    const decoder = new TextDecoder();
    return { code: result.code, stdout: decoder.decode(result.stdout), stderr: decoder.decode(result.stderr) };
  } finally {
    await Deno.remove(path);
  }
}
