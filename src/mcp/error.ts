/**
 * Errors of MCP servers: of their configuration, of their start, and of calls.
 *
 * @module
 */

/** Codes of an {@link McpError}. */
export type McpErrorCode = "config" | "sdk" | "start" | "call";

/** An error of an MCP server; told apart by `code`. */
export class McpError extends Error {
  /** Name of the class. */
  override readonly name = "McpError";
  /** The kind of error. */
  readonly code: McpErrorCode;

  /** Makes an error with a one-line message. */
  constructor(code: McpErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
