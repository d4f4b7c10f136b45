/**
 * Bytes of a keyboard to keys.
 *
 * node:readline knows the escape sequences of many terminals, but not where a paste begins and ends. The rest of an unknown sequence it
 * takes for typed text. So the bytes are cut into pastes, whole sequences and text here, and node:readline names the single keys.
 *
 * @module
 */

import { EventEmitter } from "node:events";
import { emitKeypressEvents } from "node:readline";

/** Typed input: a key by its name, such as "ctrl-a", "alt-left" or "return"; or text, which came at once where `pasted`. */
export type Key = { readonly name: string } | { readonly text: string; readonly pasted: boolean };

/** A key as node:readline describes it. */
interface Keypress {
  readonly name?: string;
  readonly ctrl: boolean;
  readonly meta: boolean;
  readonly shift: boolean;
}

const PASTE_START = "\x1b[200~";
const PASTE_END = "\x1b[201~";

/** A control sequence, one of function keys, a string for the terminal, or a key together with Alt. */
const SEQUENCE =
  // deno-lint-ignore no-control-regex
  /^\x1b(?:\x1b?\[\[?[0-?]*[ -/]*[@-~]|\x1b?O[0-9]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)|[^\x1b[O\]P^_X])/u;
/** A terminal's answers to questions, though none are asked here. */
// deno-lint-ignore no-control-regex
const STRING = /^\x1b[\]P^_X]./;
/** Matches the start of a sequence that begins with two escapes. */
// deno-lint-ignore no-control-regex
const ESCAPED = /^\x1b\x1b(?:$|[[O])/;
// deno-lint-ignore no-control-regex
const TEXT = /^[^\0-\x1f\x7f-\x9f]+/;
/** An escape sequence counts only if it ends. */
const LONGEST_SEQUENCE = 4096;

/** Keys out of a stream of bytes, however it is cut. */
export class KeyDecoder {
  readonly #decoder = new TextDecoder();
  readonly #source = new EventEmitter();
  #heard: Keypress[] = [];
  #rest = "";
  #paste: string | undefined;

  constructor() {
    emitKeypressEvents(this.#source as unknown as Parameters<typeof emitKeypressEvents>[0]);
    this.#source.on("keypress", (_: unknown, key: Keypress) => this.#heard.push(key));
  }

  /** Whether a sequence has begun that more bytes must end: the Escape key, where none come. */
  get waiting(): boolean {
    return this.#rest !== "" && this.#paste === undefined;
  }

  /** Keys that are whole with these bytes. */
  push(bytes: Uint8Array): Key[] {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const keys: Key[] = [];
    while (this.#rest !== "") {
      const key = this.#paste === undefined ? this.#next() : this.#pasted();
      if (key === undefined) break;
      if (key !== "nothing") keys.push(key);
    }
    return keys;
  }

  /** Forgets a sequence that has not ended. */
  flush(): void {
    if (this.#paste === undefined) this.#rest = "";
  }

  #pasted(): Key | undefined {
    const end = this.#rest.indexOf(PASTE_END);
    // The end may come in two pieces.
    const whole = end >= 0 ? end : Math.max(0, this.#rest.length - PASTE_END.length + 1);
    const text = this.#paste + this.#rest.slice(0, whole);
    this.#rest = this.#rest.slice(end >= 0 ? end + PASTE_END.length : whole);
    this.#paste = end >= 0 ? undefined : text;
    return end >= 0 ? { text, pasted: true } : undefined;
  }

  #next(): Key | "nothing" | undefined {
    if (this.#rest.startsWith(PASTE_START)) {
      this.#take(PASTE_START.length);
      this.#paste = "";
      return "nothing";
    }
    const [text] = TEXT.exec(this.#rest) ?? [];
    if (text !== undefined) return { text: this.#take(text.length), pasted: false };
    if (this.#rest[0] !== "\x1b") return this.#name(this.#take(1));
    const [sequence] = SEQUENCE.exec(this.#rest) ?? [];
    if (sequence !== undefined) return this.#name(this.#take(sequence.length));
    if (this.#rest.length > LONGEST_SEQUENCE) this.flush();
    else if (this.#rest.startsWith("\x1b\x1b") && !ESCAPED.test(this.#rest)) this.#take(1); // Escape, and another key
    else return undefined;
    return "nothing";
  }

  #take(count: number): string {
    const taken = this.#rest.slice(0, count);
    this.#rest = this.#rest.slice(count);
    return taken;
  }

  /** The name of one key's bytes; "nothing" for those that no key has. */
  #name(bytes: string): Key | "nothing" {
    if (STRING.test(bytes)) return "nothing";
    this.#heard = [];
    this.#source.emit("data", new TextEncoder().encode(bytes));
    const { name, ctrl = false, meta = false, shift = false } = this.#heard[0] ?? {};
    if (name === undefined || name === "undefined" || name === "escape") return "nothing";
    const plain = name === "enter" ? "return" : name; // a line feed: what was typed before the terminal gave every key
    return { name: `${ctrl ? "ctrl-" : ""}${meta ? "alt-" : ""}${shift ? "shift-" : ""}${plain}` };
  }
}
