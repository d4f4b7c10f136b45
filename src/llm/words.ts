/**
 * How a tokenizer.json prepares text for its model: "normalizer" and "pre_tokenizer" as one function from text to words.
 *
 * @module
 */

import { LlmError } from "./error.ts";

/** Cuts text into the words that are encoded one by one. */
export type Splitter = (text: string) => string[];

/** A step of a pipeline. */
interface Step {
  readonly type?: unknown;
  readonly [field: string]: unknown;
}

const FORMS: readonly unknown[] = ["NFC", "NFD", "NFKC", "NFKD"];

/** Where "ByteLevel" splits unless "use_regex" is false: GPT-2's pattern. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Reads both fields of the tokenizer.json `file`. Throws an {@link LlmError} that names what is not supported. */
export function readSplitter(json: Readonly<Record<string, unknown>>, file: string): Splitter {
  const fail = (what: string): never => {
    throw new LlmError("tokenizer", `${file}: ${what}`);
  };
  const forms = stepsOf(json.normalizer, "normalizers").map(({ type }) =>
    FORMS.includes(type)
      ? String(type)
      : fail(`normalizer ${JSON.stringify(type)} is not supported: ${FORMS.join(", ")} are`)
  );
  const steps = stepsOf(json.pre_tokenizer, "pretokenizers");
  const byteLevel = steps.pop();
  const splits = steps.map((step) => {
    const { Regex: regex } = (step.pattern ?? {}) as { Regex?: unknown };
    if (step.type === "Split" && step.behavior === "Isolated" && typeof regex === "string") return isolate(regex, fail);
    return fail(`pre_tokenizer ${JSON.stringify(step)} is not supported: "Split" with "Regex" and "Isolated" is`);
  });
  if (byteLevel?.type !== "ByteLevel") return fail(`pre_tokenizer does not end with "ByteLevel"`);
  if (byteLevel.add_prefix_space !== false) splits.push((word) => [word.startsWith(" ") ? word : ` ${word}`]);
  if (byteLevel.use_regex !== false) splits.push(isolate(GPT2, fail));
  return (text) =>
    splits.reduce(
      (words, split) => words.flatMap(split),
      [forms.reduce((normal, form) => normal.normalize(form), text)],
    );
}

/** The steps of a pipeline: none, one or a sequence. */
function stepsOf(pipeline: unknown, field: string): Step[] {
  const step = (pipeline ?? {}) as Step;
  if (step.type !== "Sequence") return pipeline ? [step] : [];
  const steps = step[field];
  return Array.isArray(steps) ? steps.flatMap((one) => stepsOf(one, field)) : [];
}

/** Cuts before and after every match of a pattern in the syntax of Oniguruma, as far as JavaScript shares it. */
function isolate(pattern: string, fail: (what: string) => never): Splitter {
  // JavaScript's \s takes U+FEFF for white space and leaves out U+0085.
  const classes = pattern.replace(/\\[^]/g, (escape) => SHARED[escape] ?? escape);
  let regex: RegExp;
  try {
    regex = new RegExp(classes, "gu");
  } catch (cause) {
    return fail(`pre_tokenizer has a pattern that is not supported: ${(cause as Error).message}`);
  }
  return (text) => {
    const words: string[] = [];
    let at = 0;
    for (const { 0: match, index } of text.matchAll(regex)) {
      if (index > at) words.push(text.slice(at, index));
      if (match !== "") words.push(match);
      at = index + match.length;
    }
    if (at < text.length) words.push(text.slice(at));
    return words;
  };
}

const SHARED: Readonly<Record<string, string>> = {
  "\\s": "\\p{White_Space}",
  "\\S": "\\P{White_Space}",
  "\\d": "\\p{Nd}",
  "\\D": "\\P{Nd}",
};
