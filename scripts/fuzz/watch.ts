/**
 * The parent of a process that reads inputs (child.ts). It gives the process jobs, collects its answers, and kills it
 * if it hangs or takes all memory. Then it goes on in a new process with the next input.
 *
 * A worker thread would not do: it shares its memory with the program, and a loop in it cannot be ended.
 *
 * @module
 */

import { importArguments } from "../imports.ts";

/** Inputs to read: made from a seed, or given. */
export type Job =
  | { readonly format: string; readonly seed: string; readonly from: number; readonly to: number }
  | { readonly format: string; readonly bytes: string };

/**
 * How an input went. "ok" and "refused" (by an error of the library) are correct. Everything else is a finding: another
 * error, a message that is not one safe line, or a wrong answer. Too much time or memory, no end, and the end of the
 * process are findings too.
 */
export type Outcome = "ok" | "refused" | "untyped" | "message" | "wrong" | "slow" | "memory" | "hang" | "crash";

/** The outcome of one input. */
export interface Answer {
  /** Its number in the run. */
  readonly index: number;
  readonly outcome: Outcome;
  /** Class and code of an error, or what is wrong. */
  readonly detail: string;
  /** Milliseconds of processor time. */
  readonly ms: number;
  /** Most bytes of memory beside those in use before. */
  readonly bytes: number;
}

/** The messages of a process before the answers of a job: it is warm, or the harness itself does not work, and why. */
export interface Ready {
  readonly ready: boolean;
  readonly fault?: string;
}

/** When a process is killed. */
export interface Limits {
  /** Milliseconds of processor time for one input, or ten times as many by the clock. */
  readonly hang: number;
  /** Bytes of memory in all. */
  readonly memory: number;
}

/** Far beyond what an input may take, near enough that a run of thousands goes on. */
export const LIMITS: Limits = { hang: 5000, memory: 1.5e9 };

/** How often a process is looked at. */
const POLL_MS = 50;
/** Time that a process has to start and to warm up. */
const START_MS = 30_000;

/** A process that reads, and its successors. */
export class Watch implements AsyncDisposable {
  readonly #formats: string;
  readonly #limits: Limits;
  #process: Deno.ChildProcess | undefined;
  #lines: ReadableStreamDefaultReader<string> | undefined;
  #input: WritableStreamDefaultWriter<Uint8Array> | undefined;
  #folder: string | undefined;
  #rest = "";

  /** `formats` is the address of a module that exports FORMATS. */
  constructor(formats: string, limits: Limits = LIMITS) {
    this.#formats = formats;
    this.#limits = limits;
  }

  /** Reads the inputs of a job, however many processes that takes. */
  async *read(job: Job): AsyncGenerator<Answer, void, void> {
    let [next, end] = "bytes" in job ? [0, 1] : [job.from, job.to];
    try {
      while (next < end) {
        await this.#send("bytes" in job ? job : { ...job, from: next });
        for (; next < end; next++) {
          const answer = await this.#answer(next);
          yield answer;
          if (answer.outcome !== "hang" && answer.outcome !== "crash" && !this.#gone) continue;
          next++;
          break;
        }
      }
    } finally {
      if (next < end) await this[Symbol.asyncDispose](); // the rest is not wanted, and answers to it may be in the pipe
    }
  }

  /** Ends the process. */
  async [Symbol.asyncDispose](): Promise<void> {
    const process = this.#process;
    if (process === undefined) return;
    this.#process = undefined;
    await this.#input?.close().catch(() => {});
    await this.#lines?.cancel().catch(() => {});
    try {
      process.kill("SIGKILL");
    } catch { /* it has ended */ }
    await process.status;
    await Deno.remove(this.#folder!, { recursive: true }).catch(() => {});
  }

  get #gone(): boolean {
    return this.#process === undefined;
  }

  async #send(job: Job): Promise<void> {
    if (this.#process === undefined) await this.#start();
    await this.#input!.write(new TextEncoder().encode(`${JSON.stringify(job)}\n`)).catch(() => {}); // its end is seen by who reads
    const said = await this.#wait(START_MS);
    const { ready, fault }: Ready = typeof said === "string" ? JSON.parse(said) : { ready: false, fault: said.detail };
    if (ready) return;
    await this[Symbol.asyncDispose]();
    throw new Error(`fuzz: the harness failed: ${fault}`);
  }

  async #start(): Promise<void> {
    this.#folder = await Deno.makeTempDir({ prefix: "vkmx-fuzz-" });
    const child = new URL("child.ts", import.meta.url).href;
    const flags = ["--v8-flags=--expose-gc", "--no-check", ...await importArguments()];
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", ...flags, child, this.#formats],
      env: { VKMX_CACHE: this.#folder, VKMX_DEVICE: "wasm", VKMX_THREADS: "1", NO_COLOR: "1" },
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    this.#lines = this.#process.stdout.pipeThrough(new TextDecoderStream()).getReader();
    this.#input = this.#process.stdin.getWriter();
    this.#rest = "";
  }

  async #answer(index: number): Promise<Answer> {
    const said = await this.#wait(this.#limits.hang);
    if (typeof said !== "string") {
      await this[Symbol.asyncDispose]();
      return { index, ms: 0, bytes: 0, ...said };
    }
    const answer: Answer | Ready = JSON.parse(said);
    if ("index" in answer) return answer;
    await this[Symbol.asyncDispose]();
    throw new Error(`fuzz: the harness failed at input ${index}: ${answer.fault}`);
  }

  /** The next line of the process, or why there is none within `patience`. */
  async #wait(patience: number): Promise<string | End> {
    const { pid, status } = this.#process!;
    const line = this.#line();
    const start = { clock: performance.now(), ...usage(pid) };
    for (;;) {
      const text = await within(line, POLL_MS);
      if (text === undefined) {
        const { code, signal } = await status;
        return { outcome: "crash", detail: `the process ended with ${signal ?? code}` };
      }
      if (text !== WAITING) return text;
      const { cpu, memory } = usage(pid);
      if (memory > this.#limits.memory) {
        return {
          outcome: "memory",
          detail: `killed at more than ${Math.round(this.#limits.memory / 1e6)} MB`,
          bytes: memory,
        };
      }
      const [worked, waited] = [cpu - start.cpu, performance.now() - start.clock];
      if (worked > patience || waited > 10 * patience) {
        return { outcome: "hang", detail: `killed after ${patience} ms`, ms: patience };
      }
    }
  }

  async #line(): Promise<string | undefined> {
    for (;;) {
      const end = this.#rest.indexOf("\n");
      if (end >= 0) {
        const line = this.#rest.slice(0, end);
        this.#rest = this.#rest.slice(end + 1);
        return line;
      }
      const { value, done } = await this.#lines!.read();
      if (done) return undefined;
      this.#rest += value;
    }
  }
}

/** A process that gave no answer. */
interface End {
  readonly outcome: Outcome;
  readonly detail: string;
  readonly ms?: number;
  readonly bytes?: number;
}

const WAITING = Symbol("waiting");

async function within<T>(promise: Promise<T>, milliseconds: number): Promise<T | typeof WAITING> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<typeof WAITING>((resolve) => timer = setTimeout(() => resolve(WAITING), milliseconds));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Milliseconds of processor time and bytes of memory that a process has taken; the clock and 0 if the system does not tell. */
function usage(pid: number): { readonly cpu: number; readonly memory: number } {
  try {
    const fields = Deno.readTextFileSync(`/proc/${pid}/stat`).replace(/^.*\) /, "").split(" ");
    const [, resident = 0] = /VmRSS:\s*(\d+)/.exec(Deno.readTextFileSync(`/proc/${pid}/status`)) ?? [];
    return { cpu: 10 * (Number(fields[11]) + Number(fields[12])), memory: 1024 * Number(resident) };
  } catch {
    return { cpu: performance.now(), memory: 0 };
  }
}
