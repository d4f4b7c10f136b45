/**
 * Runs the jobs of a conversion: rows are read from the source, computed on a device and written while the next ones are computed.
 *
 * @module
 */

import { FileError, InputFile } from "../../../ffi/file.ts";
import { storedBytes, storedRows, type StoredTensor } from "../../array/files/stored.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { shownPath } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { bytesOf, type Job, type Output } from "./jobs.ts";
import type { ShardFiles } from "./shard_files.ts";
import { yieldToEventLoop } from "../../../ffi/turn.ts";

/** Bytes of the inputs of a run of rows, about. */
const RUN_BYTES = 2 ** 25;

/** Options and callbacks of a conversion. */
export interface StreamOptions {
  readonly device?: string | undefined;
  readonly onProgress?: ((bytesDone: number, bytesTotal: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Bytes that a job reads. */
function inputBytes({ inputs }: Job): number {
  return inputs.reduce((sum, input) => sum + bytesOf(input), 0);
}

/** Where row number `first` of a job begins in an output, in bytes. */
function placeOf({ inputs, part }: Job, output: Output, first: number): number {
  const row = bytesOf(output, 1);
  return part === undefined ? first * row : part * row + first * row / inputs[0].shape[0];
}

/** Runs of rows of a job: the first one and how many. */
function* runsOf(job: Job): Generator<readonly [first: number, count: number]> {
  const [rows] = job.inputs[0].shape;
  const step = Math.max(1, Math.floor(RUN_BYTES * rows / inputBytes(job)));
  for (let first = 0; first < rows; first += step) yield [first, Math.min(step, rows - first)];
}

/** Writes the outputs of all jobs to the files. Throws the signal's reason soon after it is aborted. */
export async function runJobs(
  jobs: readonly Job[],
  files: ShardFiles,
  { device, onProgress, signal }: StreamOptions,
): Promise<void> {
  const total = jobs.reduce((sum, job) => sum + inputBytes(job), 0);
  let done = 0;
  onProgress?.(done, total);
  using sources = new Sources();
  let pending: Pending | undefined;
  try {
    for (const job of jobs) {
      for (const [first, count] of runsOf(job)) {
        signal?.throwIfAborted();
        const write = (bytes: readonly Uint8Array[]): void =>
          job.outputs.forEach((output, i) => files.write(output.name, bytes[i], placeOf(job, output, first)));
        const { compute } = job;
        if (compute === undefined) write(job.inputs.map((input) => sources.read(input, first, count)));
        else {
          const next = new Pending(device, () => compute(...job.inputs.map((x) => storedRows(x, first, count))), write);
          await pending?.finish();
          pending = next;
        }
        await yieldToEventLoop(); // where Ctrl-C is heard
        done += job.inputs.reduce((sum, input) => sum + bytesOf(input, count), 0);
        onProgress?.(done, total);
      }
    }
    await pending?.finish();
  } finally {
    pending?.[Symbol.dispose]();
  }
}

/** Rows that a device computes. */
class Pending implements Disposable {
  readonly #tensors: readonly Tensor[];
  readonly #ready: Promise<void>;
  readonly #write: (bytes: readonly Uint8Array[]) => void;

  constructor(
    device: string | undefined,
    compute: () => readonly Tensor[],
    write: (bytes: readonly Uint8Array[]) => void,
  ) {
    this.#write = write;
    this.#tensors = mx.tidy(compute);
    this.#ready = mx.withDevice(device, () => mx.asyncEval(this.#tensors));
    this.#ready.catch(() => {}); // finish() throws it
  }

  /** Writes them when they are there. */
  async finish(): Promise<void> {
    await this.#ready;
    this.#write(this.#tensors.map(storedBytes));
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    mx.dispose(this.#tensors);
  }
}

/** The files that tensors are copied from; each is opened once. */
class Sources implements Disposable {
  readonly #files = new Map<string, InputFile>();

  /** The bytes of rows of a stored tensor. Throws if the file is another one than when its header was read. */
  read(tensor: StoredTensor, first: number, count: number): Uint8Array {
    const { path, version, byteOffset } = tensor.place;
    try {
      let file = this.#files.get(path);
      if (file === undefined) this.#files.set(path, file = new InputFile(path));
      if (file.version !== version) throw new FileError("changed", "changed since it was opened: convert it again");
      return file.read(byteOffset + first * bytesOf(tensor, 1), bytesOf(tensor, count));
    } catch (cause) {
      if (!(cause instanceof FileError)) throw cause;
      throw new LlmError("weights", `${shownPath(path)} ${cause.message}`);
    }
  }

  [Symbol.dispose](): void {
    for (const file of this.#files.values()) file[Symbol.dispose]();
  }
}
