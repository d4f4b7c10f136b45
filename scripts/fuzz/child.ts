/**
 * The process that reads: `child.ts FORMATS` takes jobs on stdin, one line of JSON each, and answers every input with a line of JSON on
 * stdout. It may hang or die; its parent (watch.ts) sees to that.
 *
 * @module
 */

import process from "node:process";
import { ArrayError } from "../../src/graph/error.ts";
import { LlmError } from "../../src/llm/error.ts";
import { RuntimeError } from "../../ffi/error.ts";
import { type Format, MAX_BYTES, MAX_MILLISECONDS, Wrong } from "./format.ts";
import { Random } from "./random.ts";
import type { Answer, Job, Ready } from "./watch.ts";

/** Longest message of a typed error: several quoted texts of a file with words around them. */
const MAX_MESSAGE = 4000;
// deno-lint-ignore no-control-regex -- what a terminal may obey, or what makes two lines of one
const UNSAFE = /[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;
/** Times that an input is read that took too long: the collector, the compiler and other programs take time too. */
const TRIES = 4;

const { FORMATS }: { FORMATS: readonly Format[] } = await import(Deno.args[0]);
const { gc } = globalThis as { gc?: () => void };

/** The result of one reading. */
type Reading = Pick<Answer, "outcome" | "detail"> & { readonly ms: number; readonly bytes: number };

/** The most bytes of memory in use since {@link forgetPeak}; 0 if the system does not tell. */
function peak(): number {
  try {
    return 1024 * Number(/VmHWM:\s*(\d+)/.exec(Deno.readTextFileSync("/proc/self/status"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

function forgetPeak(): void {
  try {
    Deno.writeTextFileSync("/proc/self/clear_refs", "5");
  } catch { /* what memory() tells has to do */ }
}

/** An error of a reader, by whether a user could handle it: one of the library's errors, whose message is one safe line. */
function judge(error: unknown): Pick<Answer, "outcome" | "detail"> {
  if (error instanceof Wrong) return { outcome: "wrong", detail: error.message };
  if (error instanceof LlmError || error instanceof ArrayError || error instanceof RuntimeError) {
    const { message } = error;
    if (UNSAFE.test(message)) {
      return { outcome: "message", detail: `a control character in the message of ${frame(error)}` };
    }
    if (message.length > MAX_MESSAGE) {
      return { outcome: "message", detail: `a message of more than ${MAX_MESSAGE} characters` };
    }
    return { outcome: "refused", detail: `${error instanceof ArrayError ? "ArrayError" : error.name} ${error.code}` };
  }
  const { name } = error instanceof Error ? error : { name: typeof error };
  return { outcome: "untyped", detail: `${name} ${frame(error)}` };
}

/** The innermost place in this project that an error came from. */
function frame(error: unknown): string {
  const stack = error instanceof Error ? error.stack ?? "" : "";
  const [, file = "somewhere"] = /file:\/\/\S*?\/((?:src|ffi|scripts|tests)\/[^\s:]+):/.exec(stack) ?? [];
  const [, call = ""] = /at (?:async |new )?([\w.#]+) \(file:/.exec(stack) ?? [];
  return call === "" ? `in ${file}` : `in ${call}, ${file}`;
}

async function read(format: Format, bytes: Uint8Array): Promise<Reading> {
  forgetPeak();
  const before = Deno.memoryUsage().rss;
  const cpu = process.cpuUsage();
  const start = performance.now();
  let verdict: Pick<Answer, "outcome" | "detail"> = { outcome: "ok", detail: "" };
  try {
    await format.read(bytes);
  } catch (error) {
    verdict = judge(error);
  }
  const wall = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  // On a busy machine the clock goes on while others run; what several threads take together is no wait.
  return {
    ...verdict,
    ms: Math.min(wall, (user + system) / 1000),
    bytes: Math.max(0, Math.max(peak(), Deno.memoryUsage().rss) - before),
  };
}

/** One input: read again where it took too long, as often as it takes to be sure. */
async function answer(format: Format, bytes: Uint8Array): Promise<Omit<Answer, "index">> {
  const limit = format.milliseconds ?? MAX_MILLISECONDS;
  let reading = await read(format, bytes);
  const { bytes: memory } = reading;
  for (let tries = 1; reading.ms > limit && reading.ms < 5 * limit && tries < TRIES; tries++) {
    gc?.();
    const again = await read(format, bytes);
    if (again.ms < reading.ms) reading = again;
  }
  const { outcome, detail, ms } = reading;
  const fine = outcome === "ok" || outcome === "refused";
  // Memory first: it is the same on every machine, and filling it may be slow on a busy one.
  if (fine && memory > MAX_BYTES) {
    return { outcome: "memory", detail: `more than ${MAX_BYTES / 2 ** 20} MB`, ms, bytes: memory };
  }
  if (fine && ms > limit) return { outcome: "slow", detail: `more than ${limit} ms`, ms, bytes: memory };
  return { outcome, detail, ms, bytes: memory };
}

const encoder = new TextEncoder();

function say(line: Answer | Ready): void {
  let bytes = encoder.encode(`${JSON.stringify(line)}\n`);
  while (bytes.length > 0) bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
}

const warm = new Set<Format>();

async function work(job: Job): Promise<void> {
  const format = FORMATS.find(({ name }) => name === job.format)!;
  if (!warm.has(format)) {
    warm.add(format);
    for (let i = 0; i < 3; i++) await format.read(format.base);
  }
  say({ ready: true });
  if ("bytes" in job) return say({ index: 0, ...await answer(format, Uint8Array.fromBase64(job.bytes)) });
  for (let index = job.from; index < job.to; index++) {
    const bytes = format.generate(new Random(job.seed, format.name, index));
    say({ index, ...await answer(format, bytes) });
  }
}

let rest = "";
for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + text).split("\n");
  rest = lines.pop()!;
  for (const line of lines) {
    const job: Job = JSON.parse(line);
    try {
      await work(job);
    } catch (error) { // of the harness itself: an input cannot be made, or the file that is mutated is refused
      say({ ready: false, fault: `${job.format}: ${(error as Error).stack}` });
    }
  }
}
