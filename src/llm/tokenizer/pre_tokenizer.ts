/**
 * How a tokenizer.json prepares text for its model: "normalizer" and "pre_tokenizer" as functions from text to words.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { type Form, FORMS, normalize } from "./normalizer.ts";
import { Regex, RegexLimit } from "./regex.ts";

/** A step on text before it is encoded. */
export interface PreTokenizer {
  /** The text in the normal forms of the model. */
  normalize(text: string): string;
  /** Cuts normal text into the words that are encoded one by one. */
  split(text: string): string[];
}

/** Cuts a word into words. */
type Splitter = (word: string) => string[];

/** A step of a pipeline. */
interface Step {
  readonly type?: unknown;
  readonly [field: string]: unknown;
}

/** A piece of text, and whether the pattern of a step matches it. */
type Piece = readonly [text: string, matches: boolean];

/** Most steps of a pipeline. */
const MAX_STEPS = 64;

/** Where "ByteLevel" splits unless "use_regex" is false: GPT-2's pattern. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Throws an error about a file. */
type Fail = (what: string) => never;

/** Reads both fields of the tokenizer.json `file`. Throws an {@link LlmError} that names what is not supported. */
export function readPreTokenizer(json: Readonly<Record<string, unknown>>, file: string): PreTokenizer {
  const fail: Fail = (what) => {
    throw new LlmError("tokenizer", `${file}: ${what}`);
  };
  const forms = stepsOf(json, "normalizer", "normalizers", fail).map(({ type }): Form =>
    FORMS.find((form) => form === type) ?? fail(`normalizer ${quoted(type)} is not supported: ${FORMS.join(", ")} are`)
  );
  const steps = stepsOf(json, "pre_tokenizer", "pretokenizers", fail);
  const byteLevel = steps.pop();
  if (byteLevel?.type !== "ByteLevel") return fail(`pre_tokenizer does not end with "ByteLevel"`);
  const splits = steps.map((step) => splitterOf(step, fail));
  if (byteLevel.add_prefix_space !== false) splits.push((word) => [word.startsWith(" ") ? word : ` ${word}`]);
  if (byteLevel.use_regex !== false) splits.push(splitter(GPT2, "Isolated", false, fail));
  return {
    normalize: (text) => forms.reduce(normalize, text),
    split: (text) => splits.reduce((words, split) => words.flatMap(split), text === "" ? [] : [text]),
  };
}

/** The steps of a pipeline: none, one or a sequence. */
export function stepsOf(json: Readonly<Record<string, unknown>>, field: string, list: string, fail: Fail): Step[] {
  const flat = (pipeline: unknown): Step[] => {
    const step = (pipeline ?? {}) as Step;
    if (step.type !== "Sequence") return pipeline ? [step] : [];
    const steps = step[list];
    return Array.isArray(steps) ? steps.flatMap(flat) : fail(`"${list}" of a "Sequence" is not a list`);
  };
  const steps = flat(json[field]);
  return steps.length <= MAX_STEPS ? steps : fail(`${field} has ${steps.length} steps, at most ${MAX_STEPS}`);
}

function splitterOf(step: Step, fail: Fail): Splitter {
  if (step.type === "Digits") {
    return splitter("\\p{N}", step.individual_digits === true ? "Isolated" : "Contiguous", false, fail);
  }
  const { Regex: regex, String: text } = (step.pattern ?? {}) as { Regex?: unknown; String?: unknown };
  const pattern = typeof regex === "string"
    ? regex
    : typeof text === "string"
    ? text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")
    : undefined;
  if (step.type !== "Split" || pattern === undefined || !Object.hasOwn(BEHAVIORS, String(step.behavior))) {
    return fail(`pre_tokenizer ${quoted(step)} is not supported: "Split" with a pattern, "Digits" and "ByteLevel" are`);
  }
  return splitter(pattern, step.behavior as keyof typeof BEHAVIORS, step.invert === true, fail);
}

/** Behaviours: the pieces made of those that match and those between them. */
const BEHAVIORS = {
  Isolated: (pieces: Piece[]) => pieces.map(([text]) => text),
  Removed: (pieces: Piece[]) => pieces.filter(([, matches]) => !matches).map(([text]) => text),
  Contiguous: (pieces: Piece[]) => mergePieces(pieces, (matches, before) => matches === before),
  MergedWithPrevious: (pieces: Piece[]) => mergePieces(pieces, (matches, before) => matches && !before),
  MergedWithNext: (pieces: Piece[]) => mergePieces(pieces, (matches, before) => before && !matches),
} as const;

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
  let regex: Regex;
  try {
    regex = new Regex(pattern);
  } catch (cause) {
    return fail(`the pattern ${quoted(pattern)} of pre_tokenizer is not supported: ${(cause as Error).message}`);
  }
  const find = (text: string): number[] => {
    try {
      return regex.find(text);
    } catch (cause) {
      if (!(cause instanceof RegexLimit)) throw cause;
      return fail(`the pattern ${quoted(pattern)} of pre_tokenizer takes ${cause.message} on this text`);
    }
  };
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
