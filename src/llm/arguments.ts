/**
 * Checks of what callers pass: an option that does not exist is refused by name, where it would otherwise be passed over in silence.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { quoted } from "../graph/error.ts";
import * as graph from "../graph/options.ts";
import { LlmError } from "./error.ts";
import type { LanguageModel } from "./models/language_model.ts";
import type { Tokenizer } from "./tokenizer/tokenizer.ts";

/** Throws an {@link LlmError} unless `options` is an object whose names are in `table`; the message names the nearest one. */
export function checkOptions(call: string, options: object, table: Readonly<Record<string, true>>): void {
  graph.checkOptions(call, options, table, (message) => new LlmError("option", message));
}

/** Throws an {@link LlmError} unless a call got a model and a tokenizer. */
export function checkModel(
  call: "generate" | "batchGenerate" | "embed" | "perplexity",
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
