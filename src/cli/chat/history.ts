/**
 * Lines that were sent, kept on disk between runs: one JSON string a line, so that a message of several lines is one entry.
 *
 * It is never the reason of a failure: where it cannot be read or written, it lasts as long as the program.
 *
 * @module
 */

import { join } from "node:path";
import { cacheFolder, mayKeep } from "../../../ffi/cache_folder.ts";
import { readFile } from "../../../ffi/file.ts";

/** Lines that are kept. */
const MAX_LINES = 1000;
/** Longer ones are not kept: a pasted file is not what arrows look for. */
const LONGEST_LINE = 20_000;
const MAX_BYTES = 64 * 2 ** 20;

/** The history of one person. */
export class History {
  readonly #path: string | undefined;
  readonly #lines: string[];

  /** Reads the history file; `path` names another file than the default. */
  constructor(path?: string) {
    this.#path = path ?? (mayKeep() && cacheFolder() !== "" ? join(cacheFolder(), "chat_history") : undefined);
    const lines = this.#read();
    this.#lines = lines.slice(-MAX_LINES);
    if (lines.length > 2 * MAX_LINES) this.#shorten();
  }

  /** The lines, the oldest first. */
  get lines(): readonly string[] {
    return this.#lines;
  }

  /** Adds a line, unless it is the last one again. */
  add(line: string): void {
    if (line.trim() === "" || line === this.#lines.at(-1) || line.length > LONGEST_LINE) return;
    this.#lines.push(line);
    if (this.#lines.length > MAX_LINES) this.#lines.shift();
    this.#quietly((path) => {
      Deno.mkdirSync(join(path, ".."), { recursive: true });
      Deno.writeTextFileSync(path, `${JSON.stringify(line)}\n`, { append: true, mode: 0o600 });
    });
  }

  #read(): string[] {
    const text = this.#quietly((path) => new TextDecoder().decode(readFile(path, MAX_BYTES))) ?? "";
    return text.split("\n").flatMap((row) => {
      try {
        const line: unknown = JSON.parse(row);
        return typeof line === "string" ? [line] : [];
      } catch {
        return []; // a row that was cut off
      }
    });
  }

  #shorten(): void {
    this.#quietly((path) => {
      const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`;
      const rows = this.#lines.map((line) => `${JSON.stringify(line)}\n`);
      Deno.writeTextFileSync(temporary, rows.join(""), { createNew: true, mode: 0o600 });
      Deno.renameSync(temporary, path);
    });
  }

  #quietly<T>(work: (path: string) => T): T | undefined {
    try {
      return this.#path === undefined ? undefined : work(this.#path);
    } catch {
      return undefined;
    }
  }
}
