/**
 * What `serve` says on stderr: lines for readers, or JSON objects.
 *
 * @module
 */

import { RuntimeError } from "../../../ffi/error.ts";
import { note } from "../output.ts";

/**
 * Says what happened: the name of the event, its fields, and the line for readers; without a line they do not see it. A replica's go to
 * its front.
 */
export type Tell = (event: string, fields: Readonly<Record<string, unknown>>, line?: string) => void;

/** Lines on stderr, or JSON objects. */
export function teller(json: boolean): Tell {
  return (event, fields, line) => {
    if (json) note(`${JSON.stringify({ time: new Date().toISOString(), event, ...fields })}\n`);
    else if (line !== undefined) note(`${line}\n`);
  };
}

/** Says an error that is no matter of a client. */
export function tellError(tell: Tell, error: unknown): void {
  const message = messageOf(error);
  tell("error", { message }, `error: ${message}`);
}

/** An error's message on one line. */
function messageOf(error: unknown): string {
  const text = error instanceof RuntimeError ? error.detail : error instanceof Error ? error.message : String(error);
  return text.replaceAll(/\s*\n\s*/g, " ");
}
