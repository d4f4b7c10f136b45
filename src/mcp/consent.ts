/**
 * Which tools may be called without a question.
 *
 * @module
 */

import type { McpTool } from "./tools.ts";

/** Tools that were allowed: all, those of servers, or single ones. */
export class Consent {
  readonly #all: boolean;
  readonly #allowed: Set<string>;

  /** `allowed` has "all", names of servers, or `server.tool`. */
  constructor(allowed: readonly string[]) {
    this.#all = allowed.includes("all");
    this.#allowed = new Set(allowed);
  }

  /** Whether a tool may be called. */
  allows({ server, tool }: Pick<McpTool, "server" | "tool">): boolean {
    return this.#all || this.#allowed.has(server) || this.#allowed.has(`${server}.${tool}`);
  }

  /** Allows a tool from now on. */
  add({ server, tool }: Pick<McpTool, "server" | "tool">): void {
    this.#allowed.add(`${server}.${tool}`);
  }
}
