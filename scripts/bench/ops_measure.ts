/**
 * How `deno task bench:ops` measures: every call is waited for, the libraries take turns, and the median of several samples counts.
 *
 * The reference runs in a process of its own, ops_reference.py, which is told what to time over stdin and answers over stdout; while
 * one side computes, the other one waits for a line.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { median } from "../../src/cli/bench/figures.ts";
import { UsageError } from "../../src/cli/flags.ts";
import * as mx from "../../mod.ts";
import { type Input, MissingFunction, type OpCase, sizeOf, type Work } from "./ops_cases.ts";

/** The libraries that a run compares with. */
export const REFERENCES = ["mlx", "numpy"] as const;
/** A library that vkmx is compared with. */
export type ReferenceName = typeof REFERENCES[number];

/** How much is measured. */
export interface Effort {
  /** Samples of each side. */
  readonly samples: number;
  /** Least milliseconds of a sample: short calls are repeated. */
  readonly ms: number;
}

/** Figures of a row: milliseconds of a call, null where there are none. */
export interface OpRow {
  readonly case: string;
  readonly size: number;
  readonly work: Work;
  readonly vkmx: number | null;
  readonly mlx: number | null;
  readonly numpy: number | null;
  /** Why vkmx has no figure. */
  readonly missing?: string;
}

/** Lines of a stream as they come. */
async function* linesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string, void, void> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split("\n");
    rest = parts.pop()!;
    yield* parts;
  }
}

/** The Python side. */
export class Reference implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #output: AsyncGenerator<string, void, void>;
  /** Their versions. */
  readonly versions: Readonly<Record<ReferenceName, string>>;

  private constructor(
    child: Deno.ChildProcess,
    output: AsyncGenerator<string, void, void>,
    versions: Readonly<Record<ReferenceName, string>>,
  ) {
    this.#child = child;
    this.#input = child.stdin.getWriter();
    this.#output = output;
    this.versions = versions;
  }

  /** Starts it. Throws a UsageError where the interpreter, MLX or numpy is missing. */
  static async start(python: string): Promise<Reference> {
    const script = fileURLToPath(new URL("ops_reference.py", import.meta.url));
    const instead = "give an interpreter that has mlx[cpu] and numpy by --python or VKMX_PYTHON, or --no-reference";
    let child: Deno.ChildProcess;
    try {
      child = new Deno.Command(python, { args: [script], stdin: "piped", stdout: "piped", stderr: "inherit" }).spawn();
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
    return new Reference(child, output, { mlx: hello.mlx, numpy: hello.numpy });
  }

  /** Makes the inputs of a case. */
  async prepare(inputs: readonly Input[], n: number): Promise<void> {
    await this.#ask({ n, inputs: inputs.map((input, i) => ({ ...input, name: "abcdef"[i] })) });
  }

  /** Milliseconds of one call. Throws an Error where the library refuses it. */
  async time(library: ReferenceName, run: string, ms: number): Promise<number> {
    return (await this.#ask({ library, run, ms })).ms;
  }

  async #ask(request: unknown): Promise<{ readonly ms: number }> {
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

/** A random array; integers are rounded down. */
function randomArray({ shape, dtype, low, high }: Input): mx.Tensor {
  return mx.tidy(() => {
    if (dtype === "int32") return mx.random.randint(low, high, [...shape]);
    if (dtype === "bool") return mx.random.bernoulli(0.5, [...shape]);
    return mx.astype(mx.random.uniform(low, high, [...shape]), mx[dtype]);
  });
}

/** Milliseconds of one call, averaged over at least so many. */
function timeCalls(call: () => mx.Tensor | readonly mx.Tensor[], ms: number): number {
  const start = performance.now();
  for (let count = 1;; count++) {
    mx.tidy(() => void mx.eval(call()));
    const taken = performance.now() - start;
    if (taken >= ms) return taken / count;
  }
}

/** Measures a case on the default device, beside it the reference where there is one; undefined where it is not for the device. */
export async function measureCase(
  c: OpCase,
  scale: number,
  effort: Effort,
  reference?: Reference,
): Promise<OpRow | undefined> {
  const size = sizeOf(c, mx.defaultDevice() === "wasm" ? "cpu" : "gpu", scale);
  if (size === undefined) return undefined;
  const inputs = c.inputs(size);
  await reference?.prepare(inputs, size);
  const others = REFERENCES.filter((name) => reference && c[name] !== undefined);
  const times: Record<"vkmx" | ReferenceName, number[]> = { vkmx: [], mlx: [], numpy: [] };
  let missing: string | undefined;
  const x = inputs.map(randomArray);
  try {
    mx.eval(x);
    const call = () => c.call(x, size);
    for (let i = 0; i <= effort.samples; i++) { // the first one warms up
      if (missing === undefined) {
        try {
          times.vkmx.push(timeCalls(call, effort.ms));
        } catch (error) {
          missing = (error as Error).message;
          if (!(error instanceof MissingFunction)) missing = `refused: ${missing}`;
        }
      }
      for (const name of others) times[name].push(await reference!.time(name, c[name]!, effort.ms));
      if (i === 0) Object.values(times).forEach((t) => t.splice(0));
    }
  } finally {
    mx.dispose(x);
  }
  const { vkmx, mlx, numpy } = times;
  const common = { case: c.name, size, work: c.work(size), mlx: median(mlx), numpy: median(numpy) };
  return missing === undefined ? { ...common, vkmx: median(vkmx) } : { ...common, vkmx: null, missing };
}

/** GB/s that copying an array of so many bytes moves on the default device, read and written, the best of several. */
export async function copyBandwidth(bytes: number): Promise<number> {
  using x = mx.zeros([Math.ceil(bytes / 4)], mx.float32);
  mx.eval(x);
  let best = 0;
  for (let i = 0; i < 5; i++) {
    const { kernels: [kernel] } = await mx.profile(() => mx.tidy(() => mx.eval(mx.concatenate([x, x]))));
    best = Math.max(best, kernel.bytes / kernel.nanoseconds);
  }
  return best;
}
