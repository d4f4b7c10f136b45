/**
 * Failures of a device or of its library: one class, whose `code` says which failure it is.
 *
 * @module
 */

import { STATUS } from "./symbols.ts";

/**
 * Codes of a {@link RuntimeError}.
 *
 * - "argument": something is out of range
 * - "handle": it was closed or freed
 * - "unavailable": the device lacks a needed feature, or cannot be opened
 * - "out-of-memory": the device has no room for it
 * - "device-lost": the driver gave the device up
 * - "timeout": the device takes too long
 * - "io": a file cannot be read
 * - "plan": work for a device is malformed
 * - "vulkan": any other failure of a driver
 * - "abi": the library is of another build than this source
 * - "missing": there is no library for this machine
 * - "device": no device has that name
 */
export type RuntimeErrorCode =
  | "argument"
  | "handle"
  | "unavailable"
  | "out-of-memory"
  | "device-lost"
  | "timeout"
  | "io"
  | "plan"
  | "vulkan"
  | "abi"
  | "missing"
  | "device";

/** A device that cannot do the work. The message is one line: the call, what is wrong, what to do. */
export class RuntimeError extends Error {
  /** The class's name. */
  override readonly name = "RuntimeError";
  /** The kind of error. */
  readonly code: RuntimeErrorCode;
  /** The call that failed. */
  readonly call: string;
  /** The message without the call. */
  readonly detail: string;

  /** Makes the message `call(): detail`. */
  constructor(code: RuntimeErrorCode, call: string, detail: string, options?: ErrorOptions) {
    super(`${call}(): ${detail}`, options);
    this.code = code;
    this.call = call;
    this.detail = detail;
  }
}

/** The error of a call on a device that was closed. */
export function closedError(call: string): RuntimeError {
  return new RuntimeError("handle", call, "the device was closed, and all arrays and models on it are gone");
}

const CODES: ReadonlyMap<number, keyof typeof STATUS> = new Map(
  Object.entries(STATUS).map(([code, status]) => [status, code as keyof typeof STATUS]),
);

/**
 * Throws for a status other than 0. The native library tells the last messages of several calls as lines "call(): text";
 * `message` is asked for only on failure.
 */
export function check(status: number, call: string, message: () => string): void {
  if (status === STATUS.ok) return;
  throw statusError(status, call, message());
}

/** The error of a status; see {@link check}. */
export function statusError(status: number, call: string, text: string): RuntimeError {
  const code = CODES.get(status);
  // Those of other calls are of other threads, or leftovers.
  const [, detail] = new RegExp(`(?:^|\\n)${call}\\(\\): ([^]*?)(?=\\nvkrt_\\w+\\(\\): |$)`).exec(text) ?? [];
  if (code !== undefined && code !== "ok" && detail !== undefined) return new RuntimeError(code, call, detail);
  const known = code !== undefined && code !== "ok";
  return new RuntimeError(
    known ? code : "vulkan",
    call,
    known ? `failed: ${code}` : `answered the unknown status ${status}`,
  );
}
