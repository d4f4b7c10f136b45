/**
 * Mistakes in the input of a conversation.
 *
 * @module
 */

/** A mistake in a command of the conversation. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}
