/**
 * The "normalizer" of a tokenizer.json: what is done to text before tokens are looked for in it.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { CharSet, isWhiteSpace } from "./char_set.ts";
import { FORMS, normalize } from "./normalizer.ts";
import { type Fail, failing, finderOf, patternOf, type Step, stepsOf } from "./pipeline.ts";

/**
 * Changes a text. A text may come in several parts. `starts` and `ends` say whether a part is the first and the last one; default true.
 */
export type TextChange = (text: string, starts?: boolean, ends?: boolean) => string;

/** Reads the field of the tokenizer.json `file`. Throws an `LlmError` that names what is not supported. */
export function readNormalizer(json: Readonly<Record<string, unknown>>, file: string): TextChange {
  const fail = failing(file);
  const changes = stepsOf(json, "normalizer", "normalizers", fail).map((step) => {
    const read = STEPS.get(step.type);
    return read?.(step, fail) ??
      fail(`normalizer ${quoted(step.type)} is not supported: ${[...STEPS.keys()].join(", ")} are`);
  });
  return (text, starts = true, ends = true) => changes.reduce((text, change) => change(text, starts, ends), text);
}

const STEPS: ReadonlyMap<unknown, (step: Step, fail: Fail) => TextChange> = new Map([
  ...FORMS.map((form) => [form, (): TextChange => (text) => normalize(text, form)] as const),
  ["Prepend", readPrepend],
  ["Replace", readReplace],
  ["Strip", readStrip],
]);

/** Puts a text before every text that is not empty. */
function readPrepend({ prepend }: Step, fail: Fail): TextChange {
  if (typeof prepend !== "string") {
    return fail(`normalizer "Prepend" has ${quoted(prepend)} to prepend, expected a text`);
  }
  return (text, starts) => starts && text !== "" ? prepend + text : text;
}

/** Replaces every match of a pattern. */
function readReplace(step: Step, fail: Fail): TextChange {
  const { content } = step;
  const pattern = patternOf(step);
  if (pattern === undefined || typeof content !== "string") {
    return fail(`normalizer ${quoted(step)} has no pattern and content`);
  }
  const find = finderOf(pattern, "normalizer", fail);
  return (text) => {
    const found = find(text);
    let out = "";
    let at = 0;
    for (let i = 0; i < found.length; i += 2) {
      out += text.slice(at, found[i]) + content;
      at = found[i + 1];
    }
    return out + text.slice(at);
  };
}

const WHITE_SPACE = new CharSet(isWhiteSpace);

/** Takes white space away at the beginning, at the end, or both. */
function readStrip({ strip_left: left, strip_right: right }: Step): TextChange {
  return (text, starts, ends) => {
    let [from, to] = [0, text.length];
    if (left === true && starts) { while (from < to && WHITE_SPACE.has(text.charCodeAt(from))) from++; }
    if (right === true && ends) { while (from < to && WHITE_SPACE.has(text.charCodeAt(to - 1))) to--; }
    return text.slice(from, to);
  };
}
