/**
 * The terminal as a source of lines: raw, so that every key comes here, with the editor at its bottom while a line is read.
 *
 * Text that is typed at other times waits for the next line, as in a shell. Ctrl-C stops the current work at once. However the program
 * ends, the terminal is left as it was found.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import { kill } from "node:process";
import { onExit } from "../../../ffi/exit.ts";
import { note, print } from "../output.ts";
import { type Action, Editor, type EditorOptions } from "./editor.ts";
import { type Input, interrupted } from "./input.ts";
import { type Key, KeyDecoder } from "./keys.ts";
import type { History } from "./history.ts";
import { layout, type Prompt, Screen, type Size } from "./screen.ts";
import { harmless, width } from "./width.ts";

const PROMPT: Prompt = { first: "> ", others: "  " };
/** Begins and ends a paste with an escape sequence each. */
const PASTE_ON = "\x1b[?2004h";
const PASTE_OFF = "\x1b[?2004l";
const RESTORED = `\x1b[0m\x1b[?25h${PASTE_OFF}`;
/** Milliseconds in which the rest of an escape sequence comes; without it, the key was Escape. */
const ESCAPE_MS = 50;
const DEFAULT_SIZE: Size = { columns: 80, rows: 24 };

/** Exit codes of signals that end the program, as shells give them. */
const ENDING = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

/** Whether the terminal has the features that the editor needs. */
export function isTerminal(): boolean {
  return Deno.stdin.isTerminal() && (Deno.stderr.isTerminal() || Deno.stdout.isTerminal()) &&
    environment("TERM") !== "dumb";
}

/** A line that is being typed. */
interface Reading {
  readonly editor: Editor;
  readonly resolve: (line: string | undefined) => void;
  readonly reject: (reason: unknown) => void;
}

/** A question that waits for a key. */
interface Choosing {
  readonly keys: string;
  readonly resolve: (key: string | undefined) => void;
}

/** See above. There is one at a time. */
export class Terminal implements Input {
  readonly interactive = true;
  readonly #history: History;
  readonly #options: Omit<EditorOptions, "history">;
  readonly #write = Deno.stderr.isTerminal() ? note : print;
  readonly #screen = new Screen((text) => this.#write(text));
  readonly #decoder = new KeyDecoder();
  readonly #listeners: (readonly [Deno.Signal, () => void])[] = [];
  readonly #restore = (): void => this.#setRaw(false);
  readonly #atExit: Disposable;
  readonly #keys = Deno.stdin.readable.getReader();
  /** Keys that wait for a line to be read. */
  #waiting: Key[] = [];
  #reading: Reading | undefined;
  #choosing: Choosing | undefined;
  #work = new AbortController();
  #ended = false;
  #raw = false;
  /** Whether the key before was a Ctrl-C at an empty line. */
  #warned = false;
  #escape: ReturnType<typeof setTimeout> | undefined;

  constructor(history: History, options: Omit<EditorOptions, "history">) {
    this.#history = history;
    this.#options = options;
    this.#setRaw(true);
    this.#atExit = onExit(this.#restore);
    this.#listen("SIGWINCH", () => this.#draw());
    this.#listen("SIGCONT", () => this.#resume());
    for (const [signal, code] of Object.entries(ENDING)) {
      this.#listen(signal as keyof typeof ENDING, () => this.#endBySignal(signal, code));
    }
    this.#pump();
  }

  get signal(): AbortSignal {
    return this.#work.signal;
  }

  read(): Promise<string | undefined> {
    const editor = new Editor({ ...this.#options, history: this.#history.lines });
    return new Promise((resolve, reject) => {
      this.#reading = { editor, resolve, reject };
      const keys = this.#waiting;
      this.#waiting = [];
      this.#take(keys);
      if (this.#ended && this.#reading !== undefined) this.#finish(undefined);
    });
  }

  async choose(question: string, keys: string): Promise<string | undefined> {
    const { signal } = this;
    signal.throwIfAborted();
    if (this.#ended) return undefined;
    note(question);
    const { promise, resolve, reject } = Promise.withResolvers<string | undefined>();
    const stop = (): void => reject(signal.reason);
    signal.addEventListener("abort", stop);
    this.#choosing = { keys, resolve };
    try {
      const key = await promise;
      note(`${key ?? ""}\n`);
      return key;
    } catch (error) {
      note("\n");
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
      this.#choosing = undefined;
    }
  }

  async #pump(): Promise<void> {
    try {
      for (let part = await this.#keys.read(); !part.done; part = await this.#keys.read()) {
        clearTimeout(this.#escape);
        this.#take(this.#decoder.push(part.value));
        if (this.#decoder.waiting) this.#escape = setTimeout(() => this.#decoder.flush(), ESCAPE_MS);
      }
    } catch { /* the terminal is gone */ }
    this.#ended = true;
    this.#choosing?.resolve(undefined);
    if (this.#reading !== undefined) this.#finish(undefined);
  }

  /** Gives keys to the line that is read; those after its end wait. */
  #take(keys: readonly Key[]): void {
    for (const key of keys) {
      const action = this.#reading?.editor.press(key);
      if (this.#reading !== undefined) this.#act(action);
      else if ("name" in key && key.name === "ctrl-c") this.#stop();
      else if (this.#choosing !== undefined) this.#choose(key, this.#choosing);
      else this.#waiting.push(key);
    }
    this.#draw();
  }

  /** Takes a key that answers a question; others are ignored, as are pastes. */
  #choose(key: Key, { keys, resolve }: Choosing): void {
    if (!("text" in key) || key.pasted) return;
    const found = Array.from(key.text.toLowerCase()).find((char) => keys.includes(char));
    if (found !== undefined) resolve(found);
  }

  /** Ctrl-C during work: the work ends, and text that was typed ahead is dropped. */
  #stop(): void {
    this.#waiting = [];
    this.#work.abort();
  }

  #act(action: Action | undefined): void {
    const { editor, reject } = this.#reading!;
    const warned = this.#warned;
    this.#warned = false;
    if (action === undefined) return;
    if (action === "send") return this.#finish(editor.text);
    if (action === "end") return this.#finish(undefined);
    if (action === "suspend") return this.#suspend();
    if (action === "clear") {
      this.#screen.forget();
      return this.#write("\x1b[H\x1b[2J");
    }
    if (action !== "interrupt") return this.#above(columned(action.list, sizeNow().columns));
    const empty = editor.text === "";
    editor.cursor = editor.text.length;
    this.#screen.leave(this.#layoutOf(`${editor.text}^C`), sizeNow());
    if (!empty) editor.reset();
    else if (warned) {
      this.#reading = undefined;
      reject(interrupted());
    } else {
      this.#warned = true;
      note("Ctrl-D or /exit ends\n");
    }
  }

  /** Writes lines above the one that is typed. */
  #above(lines: string): void {
    this.#screen.leave(this.#layoutOf(this.#reading!.editor.text), sizeNow());
    this.#write(lines);
  }

  /** Ends the line that is read. */
  #finish(line: string | undefined): void {
    const { resolve } = this.#reading!;
    this.#screen.leave(this.#layoutOf(line ?? ""), sizeNow());
    this.#reading = undefined;
    this.#work = new AbortController();
    if (line !== undefined) this.#history.add(line);
    resolve(line);
  }

  #layoutOf(text: string, cursor = text.length): ReturnType<typeof layout> {
    return layout(PROMPT, text, cursor, sizeNow().columns);
  }

  #draw(): void {
    if (this.#reading === undefined || !this.#raw) return;
    const { text, cursor } = this.#reading.editor;
    this.#screen.draw(this.#layoutOf(text, cursor), sizeNow());
  }

  #suspend(): void {
    if (Deno.build.os === "windows") return;
    this.#screen.leave(this.#layoutOf(this.#reading!.editor.text), sizeNow());
    this.#setRaw(false);
    kill(0, "SIGTSTP"); // the whole group, as a terminal that is not raw does
    setTimeout(() => this.#resume()); // also where no shell is there to stop for
  }

  #resume(): void {
    this.#raw = false; // a program that ran meanwhile may have changed it
    this.#setRaw(true);
    this.#draw();
  }

  #endBySignal(signal: string, code: number): void {
    if (signal === "SIGINT" && this.#reading === undefined && !this.#work.signal.aborted) return this.#stop();
    this.#restore();
    Deno.exit(code);
  }

  #setRaw(raw: boolean): void {
    if (this.#raw === raw) return;
    this.#raw = raw;
    try {
      Deno.stdin.setRaw(raw);
      this.#write(raw ? PASTE_ON : RESTORED);
    } catch { /* the terminal is gone */ }
  }

  #listen(signal: Deno.Signal, listener: () => void): void {
    try {
      Deno.addSignalListener(signal, listener);
      this.#listeners.push([signal, listener]);
    } catch { /* Windows has fewer signals */ }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#escape);
    this.#keys.cancel().catch(() => {}); // nothing waits for it, and the program could not end with it open
    this.#restore();
    this.#atExit[Symbol.dispose]();
    for (const [signal, listener] of this.#listeners) Deno.removeSignalListener(signal, listener);
  }
}

/** Size of the terminal; one that does not tell is a usual one. */
export function sizeNow(): Size {
  try {
    const { columns, rows } = Deno.consoleSize();
    return { columns: columns || DEFAULT_SIZE.columns, rows: rows || DEFAULT_SIZE.rows };
  } catch {
    return DEFAULT_SIZE;
  }
}

/** Completions as columns, down the first one first; paths without their folders. */
function columned(words: readonly string[], columns: number): string {
  const shown = words.map((word) => harmless(word.trimEnd().replace(/^.*\/(?=.)/s, "")));
  const cell = Math.max(...shown.map(width)) + 2;
  const across = Math.max(1, Math.floor(columns / cell));
  const down = Math.ceil(shown.length / across);
  const padded = (word: string): string => word + " ".repeat(cell - width(word));
  const lines = Array.from({ length: down }, (_, row) => shown.filter((_, i) => i % down === row).map(padded).join(""));
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}
