/**
 * The pipelines of a tokenizer.json: "normalizer", "pre_tokenizer", "post_processor" and "decoder" are each none, a step or a sequence.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { Regex, RegexLimit } from "./regex.ts";

/** A step of a pipeline. */
export interface Step {
  /** Its name. */
  readonly type?: unknown;
  readonly [field: string]: unknown;
}

/** Throws an error about a file. */
export type Fail = (what: string) => never;

/** Most steps of a pipeline. */
const MAX_STEPS = 64;

/** A function that throws {@link LlmError}s about a file. */
export function failing(file: string): Fail {
  return (what) => {
    throw new LlmError("tokenizer", `${file}: ${what}`);
  };
}

/** The steps of the pipeline in a field; `list` is what its sequences call their steps. */
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

/** The "pattern" of a step in the syntax of Oniguruma: a "Regex", or a "String" that means itself; `undefined` if it has none. */
export function patternOf({ pattern }: Step): string | undefined {
  const { Regex: regex, String: text } = (pattern ?? {}) as { Regex?: unknown; String?: unknown };
  if (typeof regex === "string") return regex;
  return typeof text === "string" ? text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") : undefined;
}

/** A function that finds the matches of a pattern of a pipeline, as {@link Regex.find} does. Both fail with the pattern's name. */
export function finderOf(pattern: string, field: string, fail: Fail): (text: string) => number[] {
  let regex: Regex;
  try {
    regex = new Regex(pattern);
  } catch (cause) {
    return fail(`the pattern ${quoted(pattern)} of ${field} is not supported: ${(cause as Error).message}`);
  }
  return (text) => {
    try {
      return regex.find(text);
    } catch (cause) {
      if (!(cause instanceof RegexLimit)) throw cause;
      return fail(`the pattern ${quoted(pattern)} of ${field} takes ${cause.message} on this text`);
    }
  };
}
