/**
 * The three streams: results go to stdout, everything else to stderr, and one line at the bottom of a terminal may change in place.
 *
 * @module
 */

import { fstatSync } from "node:fs";
import { environment } from "../../ffi/environment.ts";

const UTF8 = new TextEncoder();

/** Whether {@link status} has a line on the screen. */
let shown = false;

/** Whether another process prints. */
let muted = false;

/** Leaves results and notes to another process. Errors are printed as before. */
export function mute(): void {
  muted = true;
}

/** Text of stdin, piece by piece as it arrives. */
async function* inputText(): AsyncGenerator<string, void, void> {
  try {
    yield* Deno.stdin.readable.pipeThrough(new TextDecoderStream());
  } catch (cause) {
    throw new Error(`stdin cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** Milliseconds without an end of stdin after which {@link readInput} says that it waits. */
const WAIT_MS = 3000;

/** All of stdin, but for the end of its last line. */
export async function readInput(): Promise<string> {
  const timer = setTimeout(() => note("[waiting for the end of stdin]\n"), WAIT_MS);
  try {
    return (await Array.fromAsync(inputText())).join("").replace(/\r?\n$/, "");
  } finally {
    clearTimeout(timer);
  }
}

/** Whether stdin is a pipe or a file. A socket does not count: programs leave theirs open to child processes. */
export function hasPipedInput(): boolean {
  try {
    const stats = fstatSync(0);
    return stats.isFIFO() || stats.isFile();
  } catch {
    return false; // closed
  }
}

/** Lines of stdin; the last one may lack its end. */
export async function* inputLines(): AsyncGenerator<string, void, void> {
  let rest = "";
  for await (const text of inputText()) {
    const lines = (rest + text).split(/\r?\n/);
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== "") yield rest;
}

/** Writes to stdout. Throws Deno.errors.BrokenPipe if its reader is gone. */
export function print(text: string): void {
  if (muted) return;
  status("");
  try {
    writeAll(Deno.stdout, text);
  } catch (cause) {
    if (cause instanceof Deno.errors.BrokenPipe) throw cause;
    throw new Error(`stdout cannot be written: ${(cause as Error).message}`, { cause });
  }
}

/** Writes a value to stdout as JSON on one line: what --json asks for. Throws as {@link print} does. */
export function printJson(value: unknown): void {
  print(`${JSON.stringify(value)}\n`);
}

/** Writes to stderr; a closed stderr is ignored. */
export function note(text: string): void {
  if (muted) return;
  status("");
  writeError(text);
}

/** Writes an error to stderr, also after {@link mute}. */
export function printError(text: string): void {
  status("");
  writeError(text);
}

/** Whether stderr is a terminal on which a line can change in place. */
export function canRedraw(): boolean {
  return Deno.stderr.isTerminal() && environment("TERM") !== "dumb";
}

/** Shows a line on stderr in place of the one before, where that {@link canRedraw}; what is written next takes it off, as "" does. */
export function status(line: string): void {
  if (muted) return;
  if (line !== "" && canRedraw()) {
    writeError(`\r${line}\x1b[K`);
    shown = true;
  } else if (line === "" && shown) {
    shown = false;
    writeError("\r\x1b[K");
  }
}

function writeError(text: string): void {
  try {
    writeAll(Deno.stderr, text);
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

function writeAll(to: { writeSync(bytes: Uint8Array): number }, text: string): void {
  let bytes = UTF8.encode(text);
  while (bytes.length > 0) bytes = bytes.subarray(to.writeSync(bytes));
}
