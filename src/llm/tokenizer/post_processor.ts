/**
 * The "post_processor" of a tokenizer.json: special tokens around a text, such as the one that begins it.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { type Fail, failing, stepsOf } from "./pipeline.ts";

/** Ids before a text and after it. */
export interface Around {
  /** In front. */
  readonly before: readonly number[];
  /** Ids after the text. */
  readonly after: readonly number[];
}

/** Most ids around a text. */
const MAX_IDS = 64;

/** Reads the field of the tokenizer.json `file`. Throws an `LlmError` that names what is not supported. */
export function readPostProcessor(json: Readonly<Record<string, unknown>>, file: string): Around {
  const fail = failing(file);
  let around: Around | undefined;
  for (const step of stepsOf(json, "post_processor", "processors", fail)) {
    if (step.type === "ByteLevel") continue; // is about offsets only
    if (step.type !== "TemplateProcessing") {
      return fail(
        `post_processor ${quoted(step.type)} is not supported: "ByteLevel", "TemplateProcessing" and "Sequence" are`,
      );
    }
    if (around !== undefined) fail(`post_processor has more than one "TemplateProcessing"`);
    around = readTemplate(step, fail);
  }
  return around ?? { before: [], after: [] };
}

/** A step with "single", the template of one text: special tokens around the sequence "A". */
function readTemplate(step: Readonly<Record<string, unknown>>, fail: Fail): Around {
  const tokens = (step.special_tokens ?? {}) as Record<string, { ids?: unknown } | undefined>;
  const sides: number[][] = [[]];
  for (const piece of Array.isArray(step.single) ? step.single : []) {
    const special: unknown = piece?.SpecialToken?.id;
    if (piece?.Sequence?.id === "A" && sides.length === 1) sides.push([]);
    else if (typeof special === "string" && Object.hasOwn(tokens, special)) {
      const ids = tokens[special]?.ids;
      if (!Array.isArray(ids) || ids.length > MAX_IDS || !ids.every((id) => Number.isInteger(id) && id >= 0)) {
        return fail(`post_processor has no ids for ${quoted(special)}`);
      }
      sides.at(-1)!.push(...ids);
    } else return fail(`post_processor has ${quoted(piece)} in the template "single"`);
    if (sides.at(-1)!.length > MAX_IDS) return fail(`post_processor adds more than ${MAX_IDS} ids`);
  }
  if (sides.length === 1) fail(`post_processor has no sequence "A" in the template "single"`);
  return { before: sides[0], after: sides[1] };
}
