/**
 * OpenAI's predicted outputs: a client says what it expects, such as a file that is to be changed a little. It drafts the answer, which
 * stays what it is without.
 *
 * @module
 */

import { lm } from "../../mod.ts";
import { type Kind, list, mapped, object, oneOf, required, text, textOr } from "./fields.ts";
import type { Served } from "./served.ts";

const PART = object({ type: required(oneOf("text")), text: required(text) });
const CONTENT = mapped(
  textOr(list(PART)),
  (content) => typeof content === "string" ? content : content.map((part) => part.text).join(""),
);

/** The field: `{"type": "content", "content": TEXT}`, where a text may be a list of parts. */
export const PREDICTION: Kind<string> = mapped(
  object({ type: required(oneOf("content")), content: required(CONTENT) }),
  ({ content }) => content,
);

/** The options of a request whose answer was predicted. A model whose layers cannot take drafts back has none. */
export function predicted(
  prediction: string | undefined,
  { engine, tokenizer }: Pick<Served, "engine" | "tokenizer">,
): Pick<lm.EngineRequest, "speculation"> {
  if (!prediction || !engine.canSpeculate) return {};
  return { speculation: { drafter: new lm.PredictionDrafter(tokenizer.encode(prediction)) } };
}
