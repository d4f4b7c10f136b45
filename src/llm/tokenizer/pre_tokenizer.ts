/**
 * How a tokenizer.json prepares text for its model: "normalizer" and "pre_tokenizer" as functions from text to words.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { readMetaspace } from "./metaspace.ts";
import { type Fail, failing, finderOf, patternOf, type Step, stepsOf } from "./pipeline.ts";
import { readNormalizer, type TextChange } from "./text_normalizer.ts";

/** A step on text before it is encoded. */
export interface PreTokenizer {
  /** The text in the normal form of the model. */
  readonly normalize: TextChange;
  /** Cuts normal text into the words that are encoded one by one. `first` says whether it begins the whole text; default true. */
  split(text: string, first?: boolean): string[];
}

/** Cuts a word into words; `first` says whether it begins the whole text. */
type Splitter = (word: string, first: boolean) => string[];

/** A piece of text, and whether the pattern of a step matches it. */
type Piece = readonly [text: string, matches: boolean];

/** Where "ByteLevel" splits unless "use_regex" is false: GPT-2's pattern. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/**
 * Reads both fields of the tokenizer.json `file`, whose vocabulary is of bytes or of characters. Throws an `LlmError` that names what is
 * not supported.
 */
export function readPreTokenizer(
  json: Readonly<Record<string, unknown>>,
  file: string,
  byteLevel: boolean = true,
): PreTokenizer {
  const fail = failing(file);
  const normalize = readNormalizer(json, file);
  const steps = stepsOf(json, "pre_tokenizer", "pretokenizers", fail);
  const level = byteLevel ? steps.pop() : undefined;
  if (byteLevel && level?.type !== "ByteLevel") return fail(`pre_tokenizer does not end with "ByteLevel"`);
  const splits = steps.map((step) => splitterOf(step, fail));
  if (level !== undefined) {
    if (level.add_prefix_space !== false) splits.push((word) => [word.startsWith(" ") ? word : ` ${word}`]);
    if (level.use_regex !== false) splits.push(splitter(GPT2, "Isolated", false, fail));
  }
  return {
    normalize,
    split: (text, first = true) =>
      splits.reduce(
        (words, split) => words.flatMap((word, i) => split(word, first && i === 0)),
        text === "" ? [] : [text],
      ),
  };
}

/** Punctuation as Hugging Face's tokenizers see it. */
const PUNCTUATION = "[!-/:-@\\[-`{-~\\p{P}]";

function splitterOf(step: Step, fail: Fail): Splitter {
  const behavior = BEHAVIOR_NAMES.find((name) => name === step.behavior);
  if (step.type === "Metaspace") return metaspace(step, fail);
  if (step.type === "WhitespaceSplit") return splitter("\\s", "Removed", false, fail);
  if (step.type === "Punctuation" && behavior) return splitter(PUNCTUATION, behavior, false, fail);
  if (step.type === "Digits") {
    return splitter("\\p{N}", step.individual_digits === true ? "Isolated" : "Contiguous", false, fail);
  }
  const pattern = patternOf(step);
  if (step.type !== "Split" || pattern === undefined || !behavior) {
    return fail(
      `pre_tokenizer ${
        quoted(step)
      } is not supported: "Split" with a pattern, "Metaspace", "Digits", "Punctuation", "WhitespaceSplit" ` +
        `and, at the end, "ByteLevel" are`,
    );
  }
  return splitter(pattern, behavior, step.invert === true, fail);
}

/** Writes spaces as the character of a step, and adds one before pieces of text. */
function metaspace(step: Step, fail: Fail): Splitter {
  const { replacement, scheme, cuts } = readMetaspace(step, fail);
  const split = splitter(patternOf({ pattern: { String: replacement } })!, "MergedWithNext", false, fail);
  return (word, first) => {
    const text = word.replaceAll(" ", replacement);
    const prepends = (scheme === "always" || scheme === "first" && first) && !text.startsWith(replacement);
    const whole = prepends ? replacement + text : text;
    return cuts ? split(whole, first) : [whole];
  };
}

/** Behaviours: the pieces made of those that match and those between them. */
const BEHAVIORS = {
  Isolated: (pieces: Piece[]) => pieces.map(([text]) => text),
  Removed: (pieces: Piece[]) => pieces.filter(([, matches]) => !matches).map(([text]) => text),
  Contiguous: (pieces: Piece[]) => mergePieces(pieces, (matches, before) => matches === before),
  MergedWithPrevious: (pieces: Piece[]) => mergePieces(pieces, (matches, before) => matches && !before),
  MergedWithNext: (pieces: Piece[]) => mergePieces(pieces, (matches, before) => before && !matches),
} as const;

const BEHAVIOR_NAMES = Object.keys(BEHAVIORS) as (keyof typeof BEHAVIORS)[];

/** Joins pieces to those before them where `joins`. */
function mergePieces(pieces: readonly Piece[], joins: (matches: boolean, before: boolean) => boolean): string[] {
  const words: string[] = [];
  pieces.forEach(([text, matches], i) => {
    if (i > 0 && joins(matches, pieces[i - 1][1])) words.push(words.pop() + text);
    else words.push(text);
  });
  return words;
}

/** Cuts words at the matches of a pattern in the syntax of Oniguruma. */
function splitter(pattern: string, behavior: keyof typeof BEHAVIORS, invert: boolean, fail: Fail): Splitter {
  const find = finderOf(pattern, "pre_tokenizer", fail);
  if (behavior === "Isolated") return (text) => cut(text, find(text));
  return (text) => {
    const found = find(text);
    const pieces: Piece[] = [];
    let at = 0;
    for (let i = 0; i < found.length; at = found[i + 1], i += 2) {
      if (found[i] > at) pieces.push([text.slice(at, found[i]), invert]);
      pieces.push([text.slice(found[i], found[i + 1]), !invert]);
    }
    if (at < text.length) pieces.push([text.slice(at), invert]);
    return BEHAVIORS[behavior](pieces).filter((word) => word !== "");
  };
}

/** Pieces of a text between the given places; none is empty. */
function cut(text: string, places: readonly number[]): string[] {
  const pieces: string[] = [];
  let at = 0;
  for (const place of places) {
    if (place > at) pieces.push(text.slice(at, place));
    at = place;
  }
  if (at < text.length) pieces.push(text.slice(at));
  return pieces;
}
