/**
 * When a sequence ends: at an EOS token, a stop string, a limit or an abort. Its text until then is split into an answer's parts.
 *
 * @module
 */

import { type AnswerSplitter, splitAnswer } from "../answer/parser.ts";
import type { AnswerFormat, AnswerParts } from "../answer/parts.ts";
import { checkSignal } from "../abort.ts";
import { optionError } from "../error.ts";
import type { GenerateOptions } from "./options.ts";
import type { GenerationResponse } from "./response.ts";
import { StopStrings, type StreamDecoder } from "../tokenizer/detokenizer.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** The conditions of a {@link StopChecker}. */
interface StopOptions extends Pick<GenerateOptions, "signal"> {
  readonly stop: string | readonly string[];
  /** Most tokens. */
  readonly limit: number;
  /** The parts of the answer. */
  readonly format: AnswerFormat;
}

/** The text of a sequence as its tokens come, and why it ends when it does. */
export class StopChecker {
  readonly #tokenizer: Tokenizer;
  readonly #decoder: StreamDecoder;
  readonly #stops: StopStrings;
  readonly #parser: AnswerSplitter;
  readonly #limit: number;
  readonly #signal: AbortSignal | undefined;
  #count = 0;

  /** Ends at an EOS token, a stop string, after `limit` tokens, or when the signal is aborted. */
  constructor(tokenizer: Tokenizer, { stop, limit, signal, format }: StopOptions) {
    this.#tokenizer = tokenizer;
    this.#decoder = tokenizer.decoder();
    this.#stops = new StopStrings(checkTexts("stop", typeof stop === "string" ? [stop] : stop));
    this.#parser = splitAnswer(format);
    this.#limit = limit;
    checkSignal(signal);
    this.#signal = signal;
  }

  /** Tokens so far. */
  get count(): number {
    return this.#count;
  }

  /** Takes the next token. */
  push(token: number): AnswerParts & Pick<GenerationResponse, "raw" | "finishReason"> {
    const full = ++this.#count === this.#limit;
    const eos = this.#tokenizer.eosTokenIds.has(token);
    const ended = eos || full || this.#signal?.aborted === true;
    const decoded = (eos ? "" : this.#decoder.push(token)) + (ended ? this.#decoder.finish() : "");
    let raw = this.#stops.push(decoded);
    if (ended) raw += this.#stops.finish();
    const finishReason = eos || this.#stops.found ? "stop" : full ? "length" : ended ? "abort" : null;
    return { ...this.#parser.push(raw, finishReason !== null), raw, finishReason };
  }
}

/** Throws unless an option is a list of texts. */
function checkTexts(name: string, texts: readonly string[]): readonly string[] {
  if (Array.isArray(texts) && texts.every((text) => typeof text === "string")) return texts;
  throw optionError(name, texts, "a text or a list of texts");
}
