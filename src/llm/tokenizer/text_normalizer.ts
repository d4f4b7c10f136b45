/**
 * The "normalizer" of a tokenizer.json: what is done to text before tokens are looked for in it.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { CharSet, isWhiteSpace } from "./char_set.ts";
import { FORMS, normalize } from "./normalizer.ts";
import { Charsmap } from "./sentencepiece/charsmap.ts";
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
  ["Precompiled", readPrecompiled],
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

/** Most bytes of the UTF-8 of a cluster that a rule replaces whole. */
const MAX_CLUSTER_BYTES = 5;
const CLUSTERS = new Intl.Segmenter("en", { granularity: "grapheme" });

/**
 * Replaces characters by sentencepiece's rules. As in Hugging Face's tokenizers, a rule for the beginning of a short cluster of
 * characters replaces all of it, and the shortest rule counts.
 */
function readPrecompiled({ precompiled_charsmap: base64 }: Step, fail: Fail): TextChange {
  const charsmap = new Charsmap(bytesOf(base64, fail), fail);
  const ruleOf = (text: string): string | undefined => {
    const bytes = new TextEncoder().encode(text);
    return charsmap.shortest(bytes, 0, bytes.length)?.text;
  };
  const changed = new Map<string, string>(); // by cluster
  const change = (cluster: string): string => {
    const whole = cluster.length <= MAX_CLUSTER_BYTES && new TextEncoder().encode(cluster).length <= MAX_CLUSTER_BYTES
      ? ruleOf(cluster)
      : undefined;
    return whole ?? Array.from(cluster, (char) => ruleOf(char) ?? char).join("");
  };
  return (text) => {
    let out = "";
    for (const { segment } of CLUSTERS.segment(text)) {
      let found = changed.get(segment);
      if (found === undefined) {
        found = change(segment);
        if (changed.size === MAX_CLUSTERS) changed.clear();
        if (segment.length <= MAX_CLUSTER_BYTES) changed.set(segment, found);
      }
      out += found;
    }
    return out;
  };
}

/** Clusters whose replacements are kept. */
const MAX_CLUSTERS = 10_000;

function bytesOf(base64: unknown, fail: Fail): Uint8Array {
  try {
    return Uint8Array.fromBase64(base64 as string);
  } catch {
    return fail(`normalizer "Precompiled" has the precompiled_charsmap ${quoted(base64)}, expected bytes in base64`);
  }
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
