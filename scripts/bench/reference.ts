/**
 * The Python side of benchmarks: a script that gets a request as one line of JSON and answers with another line.
 *
 * While one side computes, the other one waits for a line.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { UsageError } from "../../src/cli/flags.ts";

/** Lines of a stream as they come. */
async function* linesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string, void, void> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split("\n");
    rest = parts.pop()!;
    yield* parts;
  }
}

/** A script that runs. */
export class Reference<Versions extends string = string> implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #output: AsyncGenerator<string, void, void>;
  /** The versions of its libraries. */
  readonly versions: Readonly<Record<Versions, string>>;

  private constructor(
    child: Deno.ChildProcess,
    output: AsyncGenerator<string, void, void>,
    versions: Readonly<Record<Versions, string>>,
  ) {
    this.#child = child;
    this.#input = child.stdin.getWriter();
    this.#output = output;
    this.versions = versions;
  }

  /**
   * Starts a script of this folder, which says first which versions of its libraries it has. Throws a UsageError where the interpreter
   * or one of them, which `needs` names, is missing.
   */
  static async start<Versions extends string>(
    python: string,
    script: string,
    needs: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<Reference<Versions>> {
    const path = fileURLToPath(new URL(script, import.meta.url));
    const instead = `give an interpreter that has ${needs} by --python or VKMX_PYTHON, or --no-reference`;
    let child: Deno.ChildProcess;
    try {
      child = new Deno.Command(python, { args: [path], env, stdin: "piped", stdout: "piped", stderr: "inherit" })
        .spawn();
    } catch (error) {
      throw new UsageError(`${python} cannot be started (${(error as Error).message}): ${instead}`);
    }
    const output = linesOf(child.stdout);
    const first = (await output.next()).value;
    const hello = first ? JSON.parse(first) as Record<string, string> : { error: "it ended without an answer" };
    if (hello.error !== undefined) {
      await child.stdin.close().catch(() => {});
      await output.return();
      await child.status;
      throw new UsageError(`${python} is no reference (${hello.error}): ${instead}`);
    }
    return new Reference(child, output, hello as Record<Versions, string>);
  }

  /** Its answer. Throws an Error if it refuses. */
  async ask<T>(request: unknown): Promise<T> {
    await this.#input.write(new TextEncoder().encode(JSON.stringify(request) + "\n"));
    const line = (await this.#output.next()).value;
    if (!line) throw new Error("the reference ended in the middle of the benchmark");
    const answer = JSON.parse(line);
    if (answer.error !== undefined) throw new Error(`the reference says ${answer.error}`);
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#input.close().catch(() => {});
    await this.#output.return();
    await this.#child.status;
  }
}
