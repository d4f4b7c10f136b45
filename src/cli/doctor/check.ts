/**
 * The findings of `vkmx doctor`.
 *
 * @module
 */

import { RuntimeError } from "../../../ffi/error.ts";
import { firstLine } from "../../../ffi/published_files.ts";

/** "warn": something is less than it could be; "fail": vkmx cannot run, or computes wrongly. */
export type State = "ok" | "warn" | "fail";

/** One thing that was looked at. */
export interface Check {
  /** Its topic, in a word or two. */
  readonly name: string;
  readonly state: State;
  /** The finding. */
  readonly text: string;
  /** The remedy. */
  readonly advice?: string;
}

/** A thing that is as it should be. */
export const ok = (name: string, text: string): Check => ({ name, state: "ok", text });

/** A thing that is less than it could be. */
export const warn = (name: string, text: string, advice?: string): Check => ({
  name,
  state: "warn",
  text,
  ...(advice !== undefined && { advice }),
});

/** A thing without which nothing runs, or that computes wrongly. */
export const fail = (name: string, text: string, advice: string): Check => ({ name, state: "fail", text, advice });

/** The message of an error, on one line. */
export function reasonOf(error: unknown): string {
  return error instanceof RuntimeError ? error.detail.split("\n")[0] : firstLine(error);
}
