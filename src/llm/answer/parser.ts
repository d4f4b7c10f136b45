/**
 * The parts of an answer: what the model thought, what it says, and the functions that it calls.
 *
 *     <think>…</think> says <tool_call>…</tool_call> <tool_call>…</tool_call>
 *
 * Text comes in pieces, which may end within a mark; what may become one is held back until it is clear. Nothing is lost: a block
 * that is no call is text, and the pieces themselves are there too. Thoughts stand at the beginning or are none, so that a model
 * can write about `<think>`.
 *
 * @module
 */

import { overlap } from "../tokenizer/detokenizer.ts";
import { type ParsedToolCall, parseToolCall } from "./tool_calls.ts";

/** What became certain with a piece of an answer. */
export interface AnswerParts {
  /** What the model says. */
  readonly text: string;
  /** What it thinks. */
  readonly reasoning: string;
  /** Functions that it calls. */
  readonly toolCalls: readonly ParsedToolCall[];
}

/** Which marks have a meaning in an answer. */
export interface AnswerFormat {
  /** Whether thoughts are a part of their own: the prompt is a conversation. */
  readonly reasoning: boolean;
  /** Whether the answer begins within them: the prompt ends with `<think>`. */
  readonly thinking: boolean;
  /** Functions that may be called; without any, calls are text. */
  readonly tools: readonly unknown[];
}

/** What stands around thoughts. */
export const THINK = ["<think>", "</think>"] as const;
const CALL = ["<tool_call>", "</tool_call>"] as const;

const NO_CALLS: readonly ParsedToolCall[] = [];

/** Where an answer is: before its first word, in a thought, in what it says, or in a call. */
type Place = "start" | "reasoning" | "text" | "call";

/** Whether a prompt that ends so has begun a thought, which the answer goes on with. */
export function opensThought(end: string): boolean {
  return end.trimEnd().endsWith(THINK[0]);
}

/** Splits one answer as it comes. */
export class AnswerParser {
  readonly #tools: readonly unknown[];
  #place: Place;
  /** Text that may be the beginning of a mark, or white space that is left out when a mark follows. */
  #held = "";
  /** White space before a call, in case that it is none. */
  #gap = "";
  /** White space between the text before calls and the text after them; undefined if none has come before, or none of both. */
  #joint: string | undefined;
  /** Whether any text was given out. */
  #said = false;
  /** Whether white space that follows belongs to the mark before it. */
  #trim = true;
  #text = "";
  #reasoning = "";
  #calls: ParsedToolCall[] = [];

  /** Begins an answer. */
  constructor({ reasoning, thinking, tools }: AnswerFormat) {
    this.#tools = tools;
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
        return this.#until(THINK[1], last, (text) => this.#reasoning += text, () => {
          this.#place = "text";
          this.#trim = true;
        });
      case "text":
        if (this.#tools.length === 0) {
          this.#say(this.#take(this.#held, ""));
          return false;
        }
        return this.#until(CALL[0], last, (text) => this.#say(text), () => this.#place = "call");
      case "call":
        return this.#call(last);
    }
  }

  /** An answer begins with a thought or has none. */
  #start(last: boolean): boolean {
    const begun = this.#held.trimStart();
    if (begun.startsWith(THINK[0])) {
      this.#held = begun.slice(THINK[0].length);
      this.#place = "reasoning";
      this.#trim = true;
      return true;
    }
    if (!last && THINK[0].startsWith(begun)) return false;
    this.#place = "text";
    return true;
  }

  /** Gives out the text before a mark; white space next to marks belongs to them. */
  #until(mark: string, last: boolean, give: (text: string) => void, found: () => void): boolean {
    const at = this.#held.indexOf(mark);
    if (at >= 0) {
      const text = this.#held.slice(0, at);
      const end = text.trimEnd().length;
      this.#gap = text.slice(end);
      give(this.#take(text.slice(0, end), this.#held.slice(at + mark.length)));
      found();
      return true;
    }
    let end = this.#held.length;
    if (!last) {
      end -= overlap(this.#held, mark);
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
    const at = this.#held.indexOf(CALL[1]);
    if (at < 0 && !last) return false;
    const block = at < 0 ? this.#held : this.#held.slice(0, at);
    const call = at < 0 ? undefined : parseToolCall(block, this.#tools);
    this.#held = at < 0 ? "" : this.#held.slice(at + CALL[1].length);
    this.#place = "text";
    if (call === undefined) {
      this.#say((this.#trim ? "" : this.#gap) + CALL[0] + block + (at < 0 ? "" : CALL[1]));
      this.#trim = false;
    } else {
      this.#calls.push(call);
      this.#trim = true;
      if (this.#said) this.#joint ||= this.#gap;
    }
    return at >= 0;
  }
}
