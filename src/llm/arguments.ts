/**
 * Checks of arguments. An option that does not exist is refused by name; otherwise it would be ignored in silence.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { quoted } from "../graph/error.ts";
import * as graph from "../graph/options.ts";
import { LlmError, optionError } from "./error.ts";
import type { LanguageModel } from "./models/language_model.ts";
import type { Tokenizer } from "./tokenizer/tokenizer.ts";

/** The kinds of options: the name in messages, and the test. */
const KINDS = {
  number: ["a number", (value) => typeof value === "number"],
  numbers: [
    "a number or a list of numbers",
    (value) => [value].flat().every((one) => typeof one === "number"),
  ],
  boolean: ["true or false", (value) => typeof value === "boolean"],
  function: ["a function", (value) => typeof value === "function"],
  functions: [
    "a list of functions",
    (value) => Array.isArray(value) && value.every((one) => typeof one === "function"),
  ],
  list: ["a list", (value) => value === null || Array.isArray(value)],
  text: ["a text", (value) => typeof value === "string"],
} as const satisfies Record<string, readonly [expected: string, test: (value: unknown) => boolean]>;

/** The kind of an option; `true` if the function that takes the option checks it. */
export type OptionKind = keyof typeof KINDS | true;

/**
 * Throws an {@link LlmError} unless `options` is an object whose names are in `table`, with values of the kinds that it says. The
 * message names the option and the given value, or the nearest name.
 */
export function checkOptions(call: string, options: object, table: Readonly<Record<string, OptionKind>>): void {
  graph.checkOptions(call, options, table, (message) => new LlmError("option", message));
  for (const [name, value] of Object.entries(options)) {
    const kind = table[name];
    if (value === undefined || kind === true) continue;
    const [expected, test] = KINDS[kind];
    if (!test(value)) throw optionError(name, value, expected);
  }
}

/** Throws an {@link LlmError} unless an option is a number, and one that is `valid`. */
export function checkNumber(name: string, value: unknown, valid: boolean, expected: string): void {
  if (typeof value !== "number") throw optionError(name, value, "a number");
  if (!valid) throw optionError(name, value, expected);
}

/** Throws an {@link LlmError} unless a call got a model and a tokenizer. */
export function checkModel(
  call: "generate" | "batchGenerate" | "embed" | "perplexity" | "Engine",
  model: LanguageModel,
  tokenizer: Tokenizer,
): void {
  const expect = (what: string, found: unknown): never => {
    const shown = typeof found === "string" ? quoted(found) : found === undefined ? "nothing" : "another object";
    throw new LlmError(
      "option",
      `${call}(model, tokenizer, …) expected the ${what} that load() returns: found ${shown}`,
    );
  };
  if (typeof model?.forward !== "function" || typeof model.makeCache !== "function") expect("model", model);
  if (typeof tokenizer?.decoder !== "function") expect("tokenizer", tokenizer);
}

/** Throws a ShapeError or DtypeError unless a model can take `tokens` (B, T) and `rows` (n,). */
export function checkTokens(tokens: Tensor, rows?: Tensor): void {
  if (!(tokens instanceof mx.Tensor)) {
    throw new LlmError("option", `forward() expected an array of token ids: found ${quoted(tokens)}`);
  }
  if (tokens.ndim !== 2) {
    const fix = tokens.ndim === 1 ? ": tokens.reshape(1, -1) is a batch of one" : "";
    throw new mx.ShapeError(`forward() expected token ids of shape (batch, tokens), found (${tokens.shape})${fix}`);
  }
  for (const [name, ids] of [["token ids", tokens], ["rows", rows]] as const) {
    if (ids === undefined || ids.dtype.kind === "int" || ids.dtype.kind === "uint") continue;
    throw new mx.DtypeError(`forward() expected ${name} of an integer dtype such as mx.int32, found ${ids.dtype.name}`);
  }
}

/** The ids. Throws an {@link LlmError} unless all are of the vocabulary; `what` begins the message. */
export function checkIds(
  model: LanguageModel,
  ids: readonly number[],
  what: string,
  expected: string = "token ids",
): number[] {
  const { vocabSize } = model.config;
  const at = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (at < 0) return [...ids];
  const wrong: unknown = ids[at];
  if (typeof wrong === "number") {
    throw new LlmError("tokenizer", `${what} has token id ${wrong}, the vocabulary ends at ${vocabSize - 1}`);
  }
  throw new LlmError("option", `${what} is a list with a ${typeof wrong} in it, expected ${expected}`);
}
