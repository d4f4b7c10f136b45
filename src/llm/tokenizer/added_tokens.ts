/**
 * The "added_tokens" of a tokenizer.json: tokens that are found in text before it is encoded, as Hugging Face's tokenizers
 * find them. Those that are not "normalized" are looked for first, the others in the normal form of the rest.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { CharSet, isWhiteSpace, matching } from "./char_set.ts";
import type { JsonBytes } from "./json_bytes.ts";
import type { TextChange } from "./text_normalizer.ts";
import { TokenMatcher } from "./token_matcher.ts";

/** A token that a file adds to its vocabulary. */
export interface AddedToken {
  /** Its id. */
  readonly id: number;
  /** Its text. */
  readonly content: string;
  /** Left out of decoded text on request. */
  readonly special?: boolean;
  /** Takes the white space before it. */
  readonly lstrip?: boolean;
  /** Takes the white space after it. */
  readonly rstrip?: boolean;
  /** Counts only where no letter or digit stands beside it. */
  readonly single_word?: boolean;
  /** Is looked for in the normal form of a text. */
  readonly normalized?: boolean;
}

/** A run of text; only where `control` is set may tokens be found. */
export interface TextRun {
  /** The text. */
  readonly text: string;
  /** Whether tokens may be found in it. */
  readonly control: boolean;
}

/** Text without tokens in it, or the id of a token. */
export type Found = TextRun[] | number;

/** Most added tokens; published files have up to 66,000. */
const MAX_TOKENS = 100_000;
/** Most characters of all of them. */
const MAX_CHARS = 2 ** 21;

/** Passes the list of tokens in `json`, which may be null. */
export function readAddedTokens(json: JsonBytes): AddedToken[] {
  const tokens = new Map<string, AddedToken>();
  const owners = new Map<number, string>();
  let chars = 0;
  if (!json.opens("[") && json.value() === null) return [];
  json.array(() => {
    const token = json.value() as AddedToken | null;
    if (token === null || !isToken(token)) return json.fail('"added_tokens" is not a list of tokens');
    const { content, id } = token;
    if (tokens.size === MAX_TOKENS) json.fail(`there are more than ${MAX_TOKENS} added tokens`);
    if ((chars += content.length) > MAX_CHARS) {
      json.fail(`the added tokens have more than ${MAX_CHARS} characters in all`);
    }
    const owner = owners.get(id) ?? content;
    if (owner !== content) json.fail(`the added tokens ${quoted(owner)} and ${quoted(content)} have the same id ${id}`);
    const other = tokens.get(content)?.id ?? id;
    if (other !== id) json.fail(`the added token ${quoted(content)} has two ids, ${other} and ${id}`);
    owners.set(id, content);
    tokens.set(content, token);
  });
  return [...tokens.values()];
}

/** Whether a token has a text and an id. */
export function isToken({ content, id }: AddedToken): boolean {
  return typeof content === "string" && content.length > 0 && content.isWellFormed() && Number.isInteger(id) && id >= 0;
}

const WHITE_SPACE = new CharSet(isWhiteSpace);
/** The word characters of Rust's regular expressions. */
const WORD = new CharSet(matching("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]"));

/** Finds added tokens in text. */
export class AddedTokens {
  readonly #normalize: TextChange;
  readonly #plain: Finder | undefined;
  readonly #normalized: Finder | undefined;

  /** For the tokens of a file and its normalizer. */
  constructor(tokens: readonly AddedToken[], normalize: TextChange) {
    this.#normalize = normalize;
    const plain = tokens.filter(({ normalized }) => !normalized);
    const normalized = firstOfForms(tokens.filter((token) => token.normalized), normalize);
    if (plain.length > 0) this.#plain = new Finder(plain, plain.map(({ content }) => content));
    if (normalized.size > 0) this.#normalized = new Finder([...normalized.values()], [...normalized.keys()]);
  }

  /** The ids of tokens, and the normal forms of the texts between them. */
  find(runs: readonly TextRun[]): (number | string)[] {
    const found = this.#plain?.find(runs) ?? [runs];
    return found.flatMap((piece): (number | string)[] => {
      if (typeof piece === "number") return [piece];
      if (this.#normalized === undefined) return [this.#normalize(textOf(piece))];
      const parts = piece.filter(({ text }) => text !== "");
      const last = parts.length - 1;
      const normal = parts.map(({ text, control }, i) => ({
        text: this.#normalize(text, i === 0, i === last),
        control,
      }));
      return this.#normalized.find(normal).map((part) => typeof part === "number" ? part : textOf(part));
    });
  }
}

/** Tokens by their normal form: of several with one form the first special one, or else the first. */
function firstOfForms(tokens: readonly AddedToken[], normalize: TextChange): Map<string, AddedToken> {
  const forms = new Map<string, AddedToken>();
  for (const token of tokens) {
    const form = normalize(token.content);
    const known = forms.get(form);
    if (known === undefined || token.special && !known.special) forms.set(form, token);
  }
  return forms;
}

function textOf(runs: readonly TextRun[]): string {
  return runs.length === 1 ? runs[0].text : runs.map(({ text }) => text).join("");
}

/** Finds tokens by the texts that they are spelled with. */
class Finder {
  readonly #tokens: readonly AddedToken[];
  readonly #spellings: readonly string[];
  readonly #matcher: TokenMatcher;

  constructor(tokens: readonly AddedToken[], spellings: readonly string[]) {
    this.#tokens = tokens;
    this.#spellings = spellings;
    this.#matcher = new TokenMatcher(spellings);
  }

  /** Cuts runs at the tokens in those that are control text: from the left, always the longest. */
  find(runs: readonly TextRun[]): Found[] {
    const text = textOf(runs);
    const places: number[] = []; // tokens and where they begin, from the last run to the first
    let end = text.length;
    for (const run of runs.toReversed()) {
      const start = end - run.text.length;
      if (run.control) this.#matcher.find(text, start, end, places);
      end = start;
    }
    const out: Found[] = [];
    const between = new Slicer(runs);
    let matched = 0; // after the last match
    let done = 0; // and after the white space that it took
    let [spaceFrom, spaceTo] = [0, 0]; // white space that was looked at
    for (let i = places.length - 2; i >= 0; i -= 2) {
      const token = this.#tokens[places[i]];
      let start = places[i + 1];
      if (start < matched) continue;
      let stop = matched = start + this.#spellings[places[i]].length;
      if (token.single_word && (isWordAt(text, start, -1) || isWordAt(text, stop, 1))) continue;
      if (token.lstrip) {
        start = Math.max(start, done);
        while (start > done && WHITE_SPACE.has(text.charCodeAt(start - 1))) start--;
      }
      if (token.rstrip) {
        if (stop < spaceFrom || stop > spaceTo) {
          spaceFrom = spaceTo = stop;
          while (spaceTo < text.length && WHITE_SPACE.has(text.charCodeAt(spaceTo))) spaceTo++;
        }
        stop = spaceTo;
      }
      if (done < start) out.push(between.take(done, start));
      if (start < stop) out.push(token.id); // else another token took all of it
      done = stop;
    }
    if (done < text.length) out.push(between.take(done, text.length));
    return out;
  }
}

/** Whether a character of a word stands before a place (-1) or after it (1). */
function isWordAt(text: string, at: number, side: -1 | 1): boolean {
  if (side > 0) return at < text.length && WORD.has(text.codePointAt(at)!);
  if (at === 0) return false;
  const pair = at > 1 && text.charCodeAt(at - 1) >= 0xdc00 && text.charCodeAt(at - 1) < 0xe000;
  return WORD.has(text.codePointAt(at - (pair ? 2 : 1))!);
}

/** Cuts runs into pieces from left to right. */
class Slicer {
  readonly #runs: readonly TextRun[];
  #index = 0;
  #start = 0;

  constructor(runs: readonly TextRun[]) {
    this.#runs = runs;
  }

  /** The runs from one place to another. */
  take(from: number, to: number): TextRun[] {
    const out: TextRun[] = [];
    for (; this.#index < this.#runs.length; this.#index++) {
      const { text, control } = this.#runs[this.#index];
      const piece = text.slice(Math.max(0, from - this.#start), Math.max(0, to - this.#start));
      if (piece !== "") out.push({ text: piece, control });
      if (this.#start + text.length >= to) break;
      this.#start += text.length;
    }
    return out;
  }
}
