/**
 * The constraint on the next token of a sequence: the masks of a matcher, and before them the thoughts of models that think first.
 *
 * @module
 */

import { orAborted } from "../abort.ts";
import { answerMarks } from "../answer/parts.ts";
import { openingToken } from "../chat/thoughts.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { type Matcher, openMatcher } from "./matcher.ts";
import type { GrammarSource } from "./protocol.ts";

/** Where a sequence is: it may begin to think, it thinks, its thoughts just ended, or it answers. */
type Phase = "may think" | "thinks" | "thought" | "answers";

/** Where a sequence was before a drafted token. */
interface Mark {
  readonly token: number;
  readonly phase: Phase;
  readonly blank: number;
  readonly allowed: Int32Array | undefined;
  /** Whether the matcher has the token. */
  readonly matched: boolean;
}

/** Most tokens of white space between thoughts and an answer. */
const MAX_SPACE = 4;
/** Blank lines that models write there. */
const BLANK_LINES = ["\n", "\n\n", "\r\n", "\n\n\n"];

/** Constrains one sequence. The mask of a step must be awaited before its token is accepted. */
export class Constraint implements Disposable {
  readonly #matcher: Matcher;
  readonly #tokenizer: Tokenizer;
  readonly #size: number;
  readonly #begin: number | undefined;
  readonly #end: number | undefined;
  readonly #blankLines: ReadonlySet<number>;
  #phase: Phase = "answers";
  /** Tokens of blank lines since the thoughts ended. */
  #blank = 0;
  /** Tokens that the grammar alone allows now. */
  #allowed: Int32Array | undefined;
  /** Drafted tokens that it is ahead by. */
  #ahead: Mark[] = [];
  /** The masks of the next token and after each of those. */
  #masks: readonly Int32Array[] = [];

  private constructor(matcher: Matcher, tokenizer: Tokenizer, size: number) {
    this.#matcher = matcher;
    this.#tokenizer = tokenizer;
    this.#size = size;
    const { thoughts } = answerMarks(tokenizer);
    this.#begin = tokenizer.idOf(openingToken(thoughts));
    this.#end = tokenizer.idOf(thoughts.close);
    this.#blankLines = new Set(BLANK_LINES.flatMap((text) => tokenOf(tokenizer, text)));
  }

  /**
   * For answers of a grammar, of a model with `size` logits; `undefined` if there is none. Throws an `LlmError` if the grammar
   * cannot be used, and the signal's reason when it is aborted meanwhile.
   */
  static async open(
    tokenizer: Tokenizer,
    size: number,
    grammar: GrammarSource | undefined,
    signal?: AbortSignal,
  ): Promise<Constraint | undefined> {
    if (!grammar) return undefined;
    const opening = openMatcher(tokenizer, size, grammar);
    try {
      return new Constraint(await orAborted(opening, signal), tokenizer, size);
    } catch (error) {
      opening.then((matcher) => matcher[Symbol.dispose](), () => {});
      throw error;
    }
  }

  /**
   * Looks at the prompt: where it ends within thoughts, these come first and are free. With `thinking`, the sequence may also begin with
   * thoughts by itself, unless the prompt ends with some. The grammar holds for what follows them and some blank lines.
   */
  begin(prompt: readonly number[], thinking: boolean): void {
    if (this.#begin === undefined || this.#end === undefined) return;
    const end = prompt.lastIndexOf(this.#end);
    const after = prompt.slice(end + 1);
    // Templates switch thinking off by thoughts of white space at the end of the prompt.
    const closed = end >= 0 && after.length <= MAX_SPACE && this.#tokenizer.decode(after).trim() === "";
    const open = prompt.lastIndexOf(this.#begin) > end;
    if (open) this.#phase = "thinks";
    else if (closed && after.length === 0) this.#phase = "thought";
    else this.#phase = thinking && !closed ? "may think" : "answers";
  }

  /** A mask of the allowed next tokens: bit i % 32 of word i / 32 is set for token i. It is for one step. */
  async mask(): Promise<Int32Array> {
    await this.#goBack();
    return await this.#mask();
  }

  /**
   * Goes ahead along drafted tokens, as far as they are allowed, and returns those. {@link Constraint.masks} then has a mask for each place. Further tokens
   * that are the only allowed ones are drafted too, until there are `most`. It goes back by itself when other tokens are accepted.
   */
  async draft(drafted: readonly number[], most: number): Promise<readonly number[]> {
    await this.#goBack();
    const masks = [Int32Array.from(await this.#mask())];
    const tokens: number[] = [];
    while (tokens.length < most) {
      const token = drafted[tokens.length] ?? onlyToken(masks.at(-1)!);
      if (token === undefined || !isSet(masks.at(-1), token) || this.#tokenizer.eosTokenIds.has(token)) break;
      this.#enter(token);
      tokens.push(token);
      masks.push(Int32Array.from(await this.#mask()));
    }
    this.#masks = masks;
    return tokens;
  }

  /** The masks of the next token, and after each token of {@link Constraint.draft}. */
  async masks(): Promise<readonly Int32Array[]> {
    return this.#ahead.length > 0 ? this.#masks : [await this.mask()];
  }

  async #mask(): Promise<Int32Array> {
    if (this.#phase === "thinks") return this.#text();
    const mask = await this.#matcher.mask();
    if (this.#matcher.ended) return this.#only(this.#tokenizer.eosTokenIds);
    if (this.#phase === "answers") return mask;
    const either = Int32Array.from(mask);
    const more = this.#phase === "thought" ? this.#blankLines : [this.#begin!];
    for (const id of more) either[id >> 5] |= 1 << (id & 31);
    this.#allowed = Int32Array.from(mask); // the mask is in memory that the next one takes
    return either;
  }

  /** Takes the token of a step; the mask after it is made from now on. */
  accept(token: number): void {
    const [next] = this.#ahead;
    if (next?.token === token) this.#ahead.shift();
    else this.#advance(token, this.#restore());
  }

  /** Goes ahead by a drafted token. */
  #enter(token: number): void {
    const mark = { token, phase: this.#phase, blank: this.#blank, allowed: this.#allowed };
    this.#ahead.push({ ...mark, matched: this.#advance(token, 0) });
  }

  /** Is again where it was before drafted tokens, and returns how many of them the matcher has. */
  #restore(): number {
    const ahead = this.#ahead;
    const back = ahead.filter(({ matched }) => matched).length;
    if (ahead.length > 0) {
      [this.#phase, this.#blank, this.#allowed] = [ahead[0].phase, ahead[0].blank, ahead[0].allowed];
    }
    this.#ahead = [];
    return back;
  }

  /** Has the matcher forget drafted tokens. */
  async #goBack(): Promise<void> {
    const back = this.#restore();
    if (back === 0) return;
    this.#matcher.accept(undefined, back);
    await this.#matcher.mask();
  }

  /** Takes a token, after the matcher forgot the last `back` ones; returns whether the matcher has it. */
  #advance(token: number, back: number): boolean {
    const isText = this.#isText(token);
    const matched = isText && (back > 0 || !this.#matcher.ended);
    if (matched || back > 0) this.#matcher.accept(isText ? token : undefined, back);
    return matched;
  }

  /** Whether a token is text of the grammar, and no thought or blank line before it. */
  #isText(token: number): boolean {
    if (this.#phase === "may think" && token === this.#begin) {
      this.#phase = "thinks";
    } else if (this.#phase === "thinks") {
      if (token === this.#end) this.#phase = "thought";
    } else if (this.#phase === "thought" && this.#blankLines.has(token) && !isSet(this.#allowed, token)) {
      if (++this.#blank === MAX_SPACE) this.#phase = "answers";
    } else {
      this.#phase = "answers";
      return true;
    }
    return false;
  }

  /** Gives the matcher back. */
  [Symbol.dispose](): void {
    this.#matcher[Symbol.dispose]();
  }

  /** Every token but those that would end the thoughts without an answer. */
  #text(): Int32Array {
    const mask = everyToken(Math.min(this.#tokenizer.vocabSize, this.#size), this.#size);
    for (const id of this.#tokenizer.eosTokenIds) mask[id >> 5] &= ~(1 << (id & 31));
    return mask;
  }

  #only(ids: Iterable<number>): Int32Array {
    const mask = new Int32Array(Math.ceil(this.#size / 32));
    for (const id of ids) mask[id >> 5] |= 1 << (id & 31);
    return mask;
  }
}

/** The token that is exactly a text, in a list; empty if there is none. */
function tokenOf(tokenizer: Tokenizer, text: string): readonly number[] {
  return tokenizer.encode(text).filter((id) => tokenizer.decode([id]) === text);
}

function isSet(mask: Int32Array | undefined, token: number): boolean {
  return mask !== undefined && (mask[token >> 5] >>> (token & 31) & 1) === 1;
}

/** The token that a mask allows; undefined where it allows none or several. */
function onlyToken(mask: Int32Array): number | undefined {
  const word = mask.findIndex((bits) => bits !== 0);
  if (word < 0 || (mask[word] & (mask[word] - 1)) !== 0) return undefined;
  const isOnly = mask.findLastIndex((bits) => bits !== 0) === word;
  return isOnly ? 32 * word + 31 - Math.clz32(mask[word]) : undefined;
}

/** The mask that allows the first `count` of `size` tokens. */
export function everyToken(count: number, size: number = count): Int32Array {
  const mask = new Int32Array(Math.ceil(size / 32));
  mask.fill(-1, 0, count >> 5);
  if (count & 31) mask[count >> 5] = (1 << (count & 31)) - 1;
  return mask;
}
