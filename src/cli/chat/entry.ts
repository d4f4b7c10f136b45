/**
 * The kind of a typed line: a message, a command, or nothing.
 *
 * A text in `"""` is a message of several lines, whatever it begins with. Otherwise "/" begins a command, and "//" a message that
 * begins with "/".
 *
 * @module
 */

/** A line as it is meant. */
export type Entry =
  | { readonly kind: "message"; readonly text: string }
  | { readonly kind: "command"; readonly name: string; readonly argument: string }
  | { readonly kind: "nothing" };

const FENCE = '"""';

/** Whether a text began a block that has not ended. */
export function isOpen(text: string): boolean {
  const inner = blockOf(text);
  return inner !== undefined && !inner.trimEnd().endsWith(FENCE);
}

/** The text after the opening quotes, if there are some. */
function blockOf(text: string): string | undefined {
  const start = text.trimStart();
  return start.startsWith(FENCE) ? start.slice(FENCE.length) : undefined;
}

/** Reads a line. A block that did not end goes up to where the text does. */
export function readEntry(text: string): Entry {
  const inner = blockOf(text);
  if (inner !== undefined) {
    const end = inner.trimEnd();
    const block = end.endsWith(FENCE) ? end.slice(0, -FENCE.length) : inner;
    const message = block.replace(/^[ \t]*\n/, "").replace(/\n[ \t]*$/, "");
    return message.trim() === "" ? { kind: "nothing" } : { kind: "message", text: message };
  }
  const trimmed = text.trim();
  if (trimmed === "") return { kind: "nothing" };
  if (trimmed.startsWith("//")) return { kind: "message", text: trimmed.slice(1) };
  const [, name, argument] = /^\/(\S*)([^]*)$/.exec(trimmed) ?? [];
  return name === undefined ? { kind: "message", text } : { kind: "command", name, argument: argument.trim() };
}
