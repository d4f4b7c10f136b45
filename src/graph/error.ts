/**
 * Errors of array calls, thrown where the op is called. Messages name the call, the shapes or dtypes found, and what would fit.
 *
 * @module
 */

/** Codes of an {@link ArrayError}. */
export type ArrayErrorCode = "shape" | "dtype" | "index" | "value" | "disposed" | "file" | "kernel";

/**
 * Any error that an array call throws about its arguments; told apart by class or `code`. It has no `cause`, whose stack Deno would
 * print as well: the message says it.
 */
export class ArrayError extends Error {
  /** Name of the class. */
  override readonly name: string = "ArrayError";
  /** The kind of error. */
  readonly code: ArrayErrorCode;

  /** Makes an error with a one-line message. */
  constructor(code: ArrayErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Shapes that do not fit the call or each other. */
export class ShapeError extends ArrayError {
  /** Name of the class. */
  override readonly name = "ShapeError";

  /** Makes an error with a one-line message. */
  constructor(message: string) {
    super("shape", message);
  }
}

/** Element types that the call does not take. */
export class DtypeError extends ArrayError {
  /** Name of the class. */
  override readonly name = "DtypeError";

  /** Makes an error with a one-line message. */
  constructor(message: string) {
    super("dtype", message);
  }
}

/** An axis or index outside the array. */
export class IndexError extends ArrayError {
  /** Name of the class. */
  override readonly name = "IndexError";

  /** Makes an error with a one-line message. */
  constructor(message: string) {
    super("index", message);
  }
}

/** An argument that is neither about shapes nor dtypes nor indices. */
export class ValueError extends ArrayError {
  /** Name of the class. */
  override readonly name = "ValueError";

  /** Makes an error with a one-line message. */
  constructor(message: string) {
    super("value", message);
  }
}

/** A kernel of a program that cannot be compiled, or must not run as it is. */
export class KernelError extends ArrayError {
  /** Name of the class. */
  override readonly name = "KernelError";
  /** The compiler's output; "" if it did not run. */
  readonly log: string;
  /** The line of the source or of the header that the compiler speaks of first, from 1, if it does. */
  readonly line: number | undefined;

  /** Makes an error with a one-line message. */
  constructor(message: string, log: string = "", line?: number) {
    super("kernel", message);
    this.log = log;
    this.line = line;
  }
}

/** An error of an array call in the name of the function that made that call; other errors as they are. */
export function inNameOf(op: string, error: unknown): unknown {
  if (!(error instanceof ArrayError) || error.code === "disposed") return error;
  const { message } = error;
  error.message = message.replace(/^(?:\w+\(\) )?/, `${op}() `);
  error.stack = error.stack?.replace(message, () => error.message);
  return error;
}

/**
 * A loop whose workgroups wait for each other has failed. The state of its steps is void, and decoders of the device use barriers
 * from now on. The caller that submitted the steps submits them again.
 */
export class MegakernelFailure extends Error {
  override name = "MegakernelFailure";
}

/** Most characters of a file's text in a message. */
const MAX_QUOTED = 200;
/** Characters that JSON leaves as they are but a terminal may obey: DEL, C1 controls, line separators, bidirectional marks. */
const UNPRINTED = /[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/**
 * A value from a file or a message as errors show it: JSON on one line, of at most 200 characters. Characters that a terminal might
 * obey are escaped.
 */
export function quoted(value: unknown): string {
  let text: string;
  try {
    if (typeof value === "object" && value !== null && !isPlain(value)) return kindOf(value);
    const short = typeof value === "string" ? value.slice(0, MAX_QUOTED) : value;
    text = typeof value === "number" || typeof value === "bigint"
      ? String(value)
      : JSON.stringify(short) ?? kindOf(value); // JSON has no NaN
  } catch {
    text = typeof value === "object" ? "an object that JSON has no form for" : kindOf(value);
  }
  const escaped = withoutMarks(text);
  return escaped.length <= MAX_QUOTED ? escaped : `${escaped.slice(0, MAX_QUOTED - 1)}…`;
}

/** A text of JSON in which characters that a terminal might obey are escaped. */
export function withoutMarks(json: string): string {
  return json.replace(UNPRINTED, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Whether an object is a list or what braces make. */
export function isPlain(value: object): boolean {
  const prototype = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === null || prototype === Object.prototype;
}

/** The kind of an argument's value: "null", "string", the name of an object's class. */
export function kindOf(value: unknown): string {
  return value === null ? "null" : typeof value === "object" ? value.constructor?.name ?? "object" : typeof value;
}

/** A path as messages show it: as it is, or {@link quoted} if a terminal might obey a part of it. */
export function shownPath(path: string): string {
  // deno-lint-ignore no-control-regex
  return /[\0-\x1f]/.test(path) || path.search(UNPRINTED) >= 0 ? quoted(path) : path;
}
