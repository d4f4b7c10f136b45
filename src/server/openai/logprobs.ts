/**
 * Log probabilities of tokens in the shapes of the OpenAI API.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";

/** A token as text and as bytes; a text that is a part of a character has a replacement character in it. */
function tokenOf(tokenizer: lm.Tokenizer, id: number): { readonly token: string; readonly bytes: readonly number[] } {
  const bytes = tokenizer.tokenBytes(id) ?? new Uint8Array();
  return { token: new TextDecoder().decode(bytes), bytes: [...bytes] };
}

/** What JSON has in place of -Infinity: the logarithm of a probability that is 0 in effect, as OpenAI writes it. */
const MIN_LOGPROB = -9999;

function finite(logprob: number): number {
  return Math.max(logprob, MIN_LOGPROB);
}

/** An item of `logprobs.content` of a chat completion. */
export function chatLogprob(tokenizer: lm.Tokenizer, token: number, logprobs: lm.Logprobs): Record<string, unknown> {
  return {
    ...tokenOf(tokenizer, token),
    logprob: finite(logprobs.logprob),
    top_logprobs: logprobs.top.map((one) => ({ ...tokenOf(tokenizer, one.token), logprob: finite(one.logprob) })),
  };
}

/** The `logprobs` of a completion: lists with an item for each token. */
export class CompletionLogprobs {
  readonly tokens: string[] = [];
  readonly token_logprobs: number[] = [];
  readonly top_logprobs: Record<string, number>[] = [];
  readonly text_offset: number[] = [];

  /** Adds a token whose text begins at an offset. */
  add(tokenizer: lm.Tokenizer, token: number, logprobs: lm.Logprobs, offset: number): void {
    this.tokens.push(tokenOf(tokenizer, token).token);
    this.token_logprobs.push(finite(logprobs.logprob));
    const top = logprobs.top.map((one) => [tokenOf(tokenizer, one.token).token, finite(one.logprob)] as const);
    this.top_logprobs.push(Object.fromEntries(top.toReversed())); // of equal texts the most probable one counts
    this.text_offset.push(offset);
  }
}
