/**
 * The parts of an answer, and what their marks are.
 *
 * @module
 */

import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { callFormat, type CallFormatName } from "./call_formats.ts";
import { type ThoughtMarks, thoughtMarks } from "../chat/thoughts.ts";
import type { ParsedToolCall } from "./tool_calls.ts";

/** What became certain with a piece of an answer. */
export interface AnswerParts {
  /** What the model says. */
  readonly text: string;
  /** What it thinks. */
  readonly reasoning: string;
  /** Functions that it calls. */
  readonly toolCalls: readonly ParsedToolCall[];
}

/** The marks that a model's family writes. */
export interface AnswerMarks {
  readonly calls: CallFormatName;
  readonly thoughts: ThoughtMarks;
}

/** Which marks have a meaning in an answer. */
export interface AnswerFormat extends AnswerMarks {
  /** Whether thoughts are a part of their own: the prompt is a conversation. */
  readonly reasoning: boolean;
  /** Whether the answer begins within them: the prompt ends with the mark that opens thoughts. */
  readonly thinking: boolean;
  /** Functions that may be called; without any, calls are text. */
  readonly tools: readonly unknown[];
}

/** The marks of a model, by its chat template and its vocabulary. */
export function answerMarks(tokenizer: Tokenizer): AnswerMarks {
  const hasToken = (token: string): boolean => tokenizer.idOf(token) !== undefined;
  return { calls: callFormat(tokenizer.chatTemplate, hasToken), thoughts: thoughtMarks(hasToken) };
}
