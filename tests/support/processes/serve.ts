/**
 * `vkmx serve` as a process of its own, on the CPU.
 *
 * @module
 */

import { ROOT } from "../../../scripts/tools.ts";

/** A process that serves. */
export interface Serving {
  readonly child: Deno.ChildProcess;
  /** Lines of its stderr so far. */
  readonly lines: string[];
  /** Resolves when stderr has ended. */
  readonly ended: Promise<void>;
  readonly url: string;
}

/** Starts `vkmx serve` on a free port and waits for its address. */
export async function startServe(args: readonly string[], env: Record<string, string> = {}): Promise<Serving> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-A",
      "--quiet",
      "--no-check",
      "--config",
      `${ROOT}deno.json`,
      `${ROOT}src/cli/mod.ts`,
      "serve",
      "--port",
      "0",
      ...args,
    ],
    env: { VKMX_DEVICE: "wasm", NO_COLOR: "1", ...env },
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const lines: string[] = [];
  const ready = Promise.withResolvers<string>();
  const read = async (): Promise<void> => {
    let rest = "";
    for await (const piece of child.stderr.pipeThrough(new TextDecoderStream())) {
      const parts = (rest + piece).split("\n");
      rest = parts.pop()!;
      lines.push(...parts);
      const url = /http:\/\/[\d.:]+/.exec(parts.join("\n"))?.[0];
      if (url) ready.resolve(url);
    }
    ready.reject(new Error(`it ended: ${lines.join("\n")}`));
  };
  const ended = read();
  return { child, lines, ended, url: await ready.promise };
}
