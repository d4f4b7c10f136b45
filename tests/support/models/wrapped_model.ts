/**
 * A model some of whose parts are others.
 */

import type { DecodingModel, LanguageModel } from "../../../src/llm/models/mod.ts";

/** A model with `changes` in the places of its own parts. It is the caller's still: disposing this one does nothing. */
export function wrapped(model: LanguageModel, changes: Partial<DecodingModel>): LanguageModel {
  const own: Partial<DecodingModel> = { [Symbol.dispose]: () => {}, ...changes };
  return new Proxy(model, {
    get: (target, name) => {
      if (name in own) return Reflect.get(own, name);
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
