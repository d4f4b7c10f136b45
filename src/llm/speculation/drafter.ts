/**
 * What drafts tokens for speculation: a step of the model then verifies several at once.
 *
 * @module
 */

/**
 * Guesses the tokens that follow a sequence. Guesses cost time where they are wrong, and never change the answer.
 *
 * @example A drafter that knows the answer
 * ```ts
 * import type { lm } from "@vkmx/vkmx";
 *
 * function replay(answer: readonly number[]): lm.Drafter {
 *   let at = -1; // the first call brings the prompt
 *   return {
 *     extend: (tokens) => at = at < 0 ? 0 : at + tokens.length,
 *     draft: (count) => answer.slice(at, at + count),
 *   };
 * }
 * ```
 */
export interface Drafter {
  /** Takes the next tokens of the sequence: first those of the prompt, then those that were generated. */
  extend(tokens: readonly number[]): void;
  /**
   * Up to `count` token ids that may follow; none where it has no guess. An answer does not wait for a promise for more than a second. It
   * goes on without drafts until that resolves. The tokens that came meanwhile follow then.
   */
  draft(count: number): readonly number[] | Promise<readonly number[]>;
  /**
   * Whether drafts cost nothing, and come at once. While no step verifies them they are then compared with the tokens that come. So it is known
   * when they would pay. Default false.
   */
  readonly instant?: boolean;
  /** Whether {@link Drafter.draft} would give some now. It is called often, so it must be fast. Default: it always would. */
  matches?(): boolean;
}
