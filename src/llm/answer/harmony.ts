/**
 * The parts of an answer of gpt-oss, which is several messages on channels:
 *
 *     <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>text<|return|>
 *
 * A message to a function is a call of it. The prompt ends with `<|start|>assistant`, so that the first message begins within its head.
 *
 * @module
 */

import { overlap } from "../tokenizer/detokenizer.ts";
import { HARMONY_CHANNEL } from "./call_formats.ts";
import { parseJson } from "./literal.ts";
import { callOf, type ParsedToolCall } from "./tool_calls.ts";
import type { AnswerParts } from "./parts.ts";

const MESSAGE = "<|message|>";
const START = "<|start|>";
/** Marks that end a message. */
const ENDS = ["<|end|>", "<|call|>", "<|return|>", START];
/** Most characters of a head. */
const MAX_HEAD = 512;

const RECIPIENT = /\bto=([^\s<]+)/;
const CHANNEL = /<\|channel\|>\s*(\w+)/;
const NAMESPACE = /^functions\./;
/** How a head may begin, after the role: with a recipient or a channel. */
const HEADS = [" to=", HARMONY_CHANNEL];

/** Where a parser is: before the first message, in a head, or in a message of a kind. */
type Place = "first" | "head" | "text" | "reasoning" | "call";

/** Splits one answer as it comes. */
export class HarmonyParser {
  #place: Place = "first";
  #held = "";
  /** The head of the message, in case that it is no call. */
  #head = "";
  #text = "";
  #reasoning = "";
  #calls: ParsedToolCall[] = [];
  /** Whether text or thoughts of an earlier message were given out, so that a line lies between. */
  #before = { text: false, reasoning: false };
  #begun = false;

  /** Takes the next piece; `last` ends the answer. */
  push(piece: string, last: boolean): AnswerParts {
    this.#held += piece;
    while (this.#step(last));
    const parts = { text: this.#text, reasoning: this.#reasoning, toolCalls: this.#calls };
    this.#text = this.#reasoning = "";
    if (this.#calls.length > 0) this.#calls = [];
    return parts;
  }

  /** Goes up to the next mark; false if more text is needed. */
  #step(last: boolean): boolean {
    switch (this.#place) {
      case "first":
        return this.#first(last);
      case "head":
        return this.#readHead(last);
      case "call":
        return this.#call(last);
      default:
        return this.#body(this.#place, last);
    }
  }

  /** An answer that begins without a head is text. */
  #first(last: boolean): boolean {
    const begins = HEADS.some((head) => this.#held.startsWith(head));
    if (!begins && !last && HEADS.some((head) => head.startsWith(this.#held))) return false;
    this.#place = begins ? "head" : "text";
    return this.#held !== "";
  }

  /** A head is all up to `<|message|>`. One that is none is text. */
  #readHead(last: boolean): boolean {
    const at = this.#held.indexOf(MESSAGE);
    if (at < 0 && !last && this.#held.length < MAX_HEAD) return false;
    if (at < 0) {
      this.#give("text", this.#held);
      this.#held = "";
      this.#place = "text";
      return false;
    }
    this.#head = this.#held.slice(0, at + MESSAGE.length);
    this.#held = this.#held.slice(at + MESSAGE.length);
    this.#begun = false;
    const [, channel] = CHANNEL.exec(this.#head) ?? [];
    this.#place = RECIPIENT.test(this.#head) ? "call" : channel === "analysis" ? "reasoning" : "text";
    return true;
  }

  /** Gives out a message up to its end. */
  #body(kind: "text" | "reasoning", last: boolean): boolean {
    const found = this.#end();
    if (found) {
      this.#give(kind, this.#held.slice(0, found.at));
      this.#next(found);
      return true;
    }
    const held = last ? 0 : Math.max(...ENDS.map((mark) => overlap(this.#held, mark)));
    this.#give(kind, this.#held.slice(0, this.#held.length - held));
    this.#held = this.#held.slice(this.#held.length - held);
    return false;
  }

  /** A call is whole at the end of its message, or of the answer: `<|call|>` ends it. */
  #call(last: boolean): boolean {
    const found = this.#end();
    if (!found && !last) return false;
    const body = found ? this.#held.slice(0, found.at) : this.#held;
    const [, recipient = ""] = RECIPIENT.exec(this.#head) ?? [];
    const call = callOf({ name: recipient.replace(NAMESPACE, ""), arguments: parseJson(body.trim() || "{}") ?? null });
    if (call) this.#calls.push(call);
    else this.#give("text", this.#head + body);
    if (found) this.#next(found);
    else this.#held = "";
    return found !== undefined;
  }

  /** The first mark that ends a message. */
  #end(): { readonly at: number; readonly mark: string } | undefined {
    const found = ENDS.map((mark) => ({ at: this.#held.indexOf(mark), mark })).filter(({ at }) => at >= 0);
    return found.sort((a, b) => a.at - b.at)[0];
  }

  /** Goes on after the end of a message. */
  #next({ at, mark }: { readonly at: number; readonly mark: string }): void {
    this.#held = this.#held.slice(at + mark.length);
    this.#place = "head";
  }

  #give(kind: "text" | "reasoning", piece: string): void {
    if (piece === "") return;
    const joint = !this.#begun && this.#before[kind] ? "\n" : "";
    this.#begun = this.#before[kind] = true;
    if (kind === "text") this.#text += joint + piece;
    else this.#reasoning += joint + piece;
  }
}
