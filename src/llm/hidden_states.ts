/**
 * What a model makes of tokens between its layers.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import { Tensor } from "../array/mod.ts";
import { checkIds, checkOptions } from "./arguments.ts";
import { LlmError } from "./error.ts";
import type { LanguageModel } from "./models/mod.ts";

/** Options of {@link hiddenStates}. */
export interface HiddenStatesOptions {
  /**
   * Which states: 0 are the embeddings, n what layer n gives, and the last one has gone through the norm behind the layers, as
   * `output_hidden_states` of transformers numbers them. Negative numbers count from the end. All unless given.
   */
  readonly layers?: readonly number[];
}

const OPTIONS = { layers: true } as const satisfies Record<keyof HiddenStatesOptions, true>;

/** The methods of a model that gives hidden states. */
export type WithHiddenStates = LanguageModel & Required<Pick<LanguageModel, "hiddenStates" | "logits">>;

/** Throws an {@link LlmError} unless a model gives hidden states. */
export function checkHiddenStates(call: string, model: LanguageModel): asserts model is WithHiddenStates {
  if (typeof model?.hiddenStates === "function" && typeof model.logits === "function") return;
  throw new LlmError("option", `${call}(model, …) expected a model that load() returns, which gives hidden states`);
}

/**
 * The hidden states of tokens, ids (T,) or (B, T) of sequences of equal length: float arrays (B, T, hidden), B = 1 for a list of ids, in
 * the order of `layers`. Nothing is computed before it is read. Throws an {@link LlmError} for ids or layers that there are not.
 *
 * @example
 * ```ts ignore
 * const [last] = mx.lm.hiddenStates(model, tokenizer.encode("Once upon a time"), { layers: [-1] });
 * last.shape; // [1, 4, 256]
 * ```
 */
export function hiddenStates(
  model: LanguageModel,
  tokens: readonly number[] | Tensor,
  options: HiddenStatesOptions = {},
): Tensor[] {
  checkHiddenStates("hiddenStates", model);
  checkOptions("hiddenStates", options, OPTIONS);
  return mx.tidy(() => {
    const ids = tokens instanceof Tensor ? tokens : mx.array([checkIds(model, [...tokens], "The list")], mx.int32);
    const states = model.hiddenStates(ids.ndim === 1 ? ids.reshape([1, -1]) : ids);
    const { layers = states.map((_, i) => i) } = options;
    return layers.map((layer) => {
      const state = Number.isInteger(layer) ? states.at(layer) : undefined;
      if (state !== undefined) return state;
      throw new LlmError(
        "option",
        `layers has ${layer}, expected integers from ${-states.length} to ${states.length - 1}`,
      );
    });
  });
}
