/**
 * The parts of an answer: what the model thought, what it says, and the functions that it calls.
 *
 *     <think>…</think> says <tool_call>…</tool_call> <tool_call>…</tool_call>
 *
 * The marks are those of the model's family (thoughts.ts, call_formats.ts); gpt-oss writes messages in their place (harmony.ts).
 * Text comes in pieces, which may end within a mark; what may become one is held back until it is clear. Nothing is lost: a block
 * that is no call is text, and the pieces themselves are there too. Thoughts stand at the beginning or are none, so that a model
 * can write about `<think>`.
 *
 * @module
 */

import { overlap } from "../tokenizer/detokenizer.ts";
import { CALL_FORMATS, type CallFormat } from "./call_formats.ts";
import { HarmonyParser } from "./harmony.ts";
import type { AnswerFormat, AnswerParts } from "./parts.ts";
import type { ThoughtMarks } from "../chat/thoughts.ts";
import type { ParsedToolCall } from "./tool_calls.ts";

const NO_CALLS: readonly ParsedToolCall[] = [];

/** Where an answer is: before its first word, in a thought, in what it says, or in a call. */
type Place = "start" | "reasoning" | "text" | "call";

/** Splits one answer as it comes. */
export interface AnswerSplitter {
  /** Takes the next piece; `last` ends the answer. */
  push(piece: string, last: boolean): AnswerParts;
}

/** Begins an answer. */
export function splitAnswer(format: AnswerFormat): AnswerSplitter {
  return format.calls === "harmony" && format.reasoning ? new HarmonyParser() : new AnswerParser(format);
}

/** Splits an answer by the marks around thoughts and calls. */
class AnswerParser {
  readonly #tools: readonly unknown[];
  readonly #thoughts: ThoughtMarks;
  readonly #format: CallFormat;
  #place: Place;
  /** Text that may be the beginning of a mark, or white space that is left out when a mark follows. */
  #held = "";
  /** White space before a call, in case that it is none. */
  #gap = "";
  /** White space between the text before calls and the text after them; undefined if none has come before, or none of both. */
  #joint: string | undefined;
  /** Whether any text was given out. */
  #said = false;
  /** Whether nothing was said since the answer began or since a call. */
  #fresh = true;
  /** Whether white space that follows belongs to the mark before it. */
  #trim = true;
  #text = "";
  #reasoning = "";
  #calls: ParsedToolCall[] = [];

  /** Begins an answer. */
  constructor({ reasoning, thinking, tools, calls, thoughts }: AnswerFormat) {
    this.#tools = tools;
    this.#thoughts = thoughts;
    this.#format = CALL_FORMATS[calls];
    this.#place = !reasoning ? "text" : thinking ? "reasoning" : "start";
    this.#trim = this.#place === "reasoning";
  }

  /** Takes the next piece; `last` ends the answer. */
  push(piece: string, last: boolean): AnswerParts {
    if (this.#place === "text" && this.#tools.length === 0 && !this.#trim) {
      return { text: piece, reasoning: "", toolCalls: NO_CALLS };
    }
    this.#held += piece;
    while (this.#step(last));
    const parts = {
      text: this.#text,
      reasoning: this.#reasoning,
      toolCalls: this.#calls.length === 0 ? NO_CALLS : this.#calls,
    };
    this.#text = this.#reasoning = "";
    if (this.#calls.length > 0) this.#calls = [];
    return parts;
  }

  /** Goes up to the next mark; false if more text is needed. */
  #step(last: boolean): boolean {
    switch (this.#place) {
      case "start":
        return this.#start(last);
      case "reasoning":
        return this.#until([this.#thoughts.close], last, (text) => this.#reasoning += text, () => {
          this.#place = "text";
          this.#trim = true;
        });
      case "text":
        if (this.#tools.length === 0) {
          this.#say(this.#take(this.#held, ""));
          return false;
        }
        if (this.#fresh && this.#format.opensFirst.length > 0) return this.#first(last);
        return this.#until(this.#format.opens, last, (text) => this.#say(text), (mark) => {
          this.#held = mark + this.#held;
          this.#place = "call";
        });
      case "call":
        return this.#call(last);
    }
  }

  /** An answer begins with a thought or has none. */
  #start(last: boolean): boolean {
    const begun = this.#held.trimStart();
    if (begun.startsWith(this.#thoughts.open)) {
      this.#held = begun.slice(this.#thoughts.open.length);
      this.#place = "reasoning";
      this.#trim = true;
      return true;
    }
    if (!last && this.#thoughts.open.startsWith(begun)) return false;
    this.#place = "text";
    return true;
  }

  /** Looks for a mark that begins a call only here, white space left aside. */
  #first(last: boolean): boolean {
    const begun = this.#held.trimStart();
    if (begun === "" && !last) return false;
    this.#fresh = false;
    if (!this.#format.opensFirst.some((mark) => begun.startsWith(mark))) return true;
    this.#gap = this.#held.slice(0, this.#held.length - begun.length);
    this.#held = begun;
    this.#place = "call";
    return true;
  }

  /** Gives out the text before the first of some marks; white space next to marks belongs to them. */
  #until(
    marks: readonly string[],
    last: boolean,
    give: (text: string) => void,
    found: (mark: string) => void,
  ): boolean {
    const places = marks.map((mark) => ({ mark, at: this.#held.indexOf(mark) })).filter(({ at }) => at >= 0);
    if (places.length > 0) {
      const { mark, at } = places.reduce((first, other) => other.at < first.at ? other : first);
      const text = this.#held.slice(0, at);
      const end = text.trimEnd().length;
      this.#gap = text.slice(end);
      give(this.#take(text.slice(0, end), this.#held.slice(at + mark.length)));
      found(mark);
      return true;
    }
    let end = this.#held.length;
    if (!last) {
      end -= Math.max(...marks.map((mark) => overlap(this.#held, mark)));
      end = this.#held.slice(0, end).trimEnd().length;
    }
    give(this.#take(this.#held.slice(0, end), this.#held.slice(end)));
    return false;
  }

  /** Gives out text, apart from the text before a call. */
  #say(text: string): void {
    if (text === "") return;
    this.#text += (this.#joint === "" ? "\n" : this.#joint ?? "") + text;
    this.#joint = undefined;
    this.#said = true;
    this.#fresh = false;
  }

  /** Text for a part, without white space that belongs to the mark before it; `rest` is held on to. */
  #take(text: string, rest: string): string {
    const taken = this.#trim ? text.trimStart() : text;
    if (taken !== "") {
      if (this.#joint === "") this.#joint = text.slice(0, text.length - taken.length);
      this.#trim = false;
    }
    this.#held = rest;
    return taken;
  }

  /** A call is given out when its block is whole; a block that is none is text, as is one that the answer ends in. */
  #call(last: boolean): boolean {
    const block = this.#format.read(this.#held, last, this.#tools);
    if (block === undefined) return false;
    const { length, calls } = block;
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    this.#place = "text";
    if (calls === undefined) {
      this.#say((this.#trim ? "" : this.#gap) + text);
      this.#trim = false;
    } else {
      this.#calls.push(...calls);
      this.#trim = this.#fresh = true;
      if (this.#said) this.#joint ||= this.#gap;
    }
    return this.#held !== "";
  }
}
