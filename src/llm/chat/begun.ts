/**
 * Answers that have begun: the turn of the assistant is opened up to the text that the answer goes on from.
 *
 * @module
 */

import { thoughtMarks } from "./thoughts.ts";

/** How prompts of gpt-oss end: with the role, before the channel of a message. */
const HARMONY_TURN = "<|start|>assistant";
const HARMONY_TEXT = "<|channel|>final<|message|>";

/** What follows a prompt before the text of an answer: the channel of texts, or the end of a thought that the prompt opens. */
export function opening(prompt: string, hasToken: (token: string) => boolean): string {
  if (prompt.endsWith(HARMONY_TURN)) return HARMONY_TEXT;
  const { open, close } = thoughtMarks(hasToken);
  const end = prompt.trimEnd();
  if (!end.endsWith(open)) return "";
  return prompt.slice(end.length).includes("\n") ? `\n${close}\n\n` : close; // as models write empty thoughts
}
