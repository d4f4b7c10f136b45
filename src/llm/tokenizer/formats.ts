/**
 * The files that a tokenizer is read from.
 *
 * @module
 */

import { LlmError } from "../error.ts";

/** Names of the files; the first one that a directory has counts. */
export const TOKENIZER_FILES = ["tokenizer.json", "tekken.json", "tokenizer.model"] as const;
/** One of {@link TOKENIZER_FILES}. */
export type TokenizerFormat = typeof TOKENIZER_FILES[number];

/**
 * The tokenizer's file of a directory and its bytes. `read` gives `undefined` for a file that is not there. Throws an {@link LlmError} if
 * there is none of them.
 */
export function findTokenizer(
  dir: string,
  read: (name: TokenizerFormat) => Uint8Array | undefined,
): { readonly tokenizer: Uint8Array; readonly format: TokenizerFormat } {
  for (const format of TOKENIZER_FILES) {
    const tokenizer = read(format);
    if (tokenizer !== undefined) return { tokenizer, format };
  }
  const [first, ...others] = TOKENIZER_FILES;
  throw new LlmError("tokenizer", `${dir}/${first} does not exist, nor ${others.join(" or ")}`);
}
