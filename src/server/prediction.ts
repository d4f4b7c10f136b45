/**
 * OpenAI's predicted outputs: a client says what it expects, such as a file that is to be changed a little. It drafts the answer, which
 * stays what it is without.
 *
 * @module
 */

import { lm } from "../../mod.ts";
import { type Kind, list, mapped, object, oneOf, required, text, textOr } from "./fields.ts";
import type { Served } from "./served.ts";

/** The text of a request that its choices are predicted by, and its tokens when a choice has asked for them. */
export interface Prediction {
  readonly text: string;
  ids?: readonly number[];
}

const PART = object({ type: required(oneOf("text")), text: required(text) });
const CONTENT = mapped(
  textOr(list(PART)),
  (content) => typeof content === "string" ? content : content.map((part) => part.text).join(""),
);

/** The field: `{"type": "content", "content": TEXT}`, where a text may be a list of parts. */
export const PREDICTION: Kind<Prediction> = mapped(
  object({ type: required(oneOf("content")), content: required(CONTENT) }),
  ({ content }) => ({ text: content }),
);

/** The options of a request whose answer was predicted. */
export function predicted(
  prediction: Prediction | undefined,
  { tokenizer }: Pick<Served, "tokenizer">,
): Pick<lm.EngineRequest, "speculation"> {
  if (!prediction?.text) return {};
  // An answer goes on after its prompt, so it does not begin with the tokens that begin a text.
  prediction.ids ??= tokenizer.encode(prediction.text, { addSpecialTokens: false });
  return { speculation: { drafter: new lm.PredictionDrafter(prediction.ids) } };
}
