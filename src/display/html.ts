/**
 * Text in HTML and SVG.
 *
 * @module
 */

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** A text that HTML and XML show as it is: marks are escaped, and what XML does not allow is replaced. */
export function escapeMarkup(text: string): string {
  return text.toWellFormed()
    // deno-lint-ignore no-control-regex
    .replaceAll(/[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g, "\ufffd")
    .replaceAll(/[&<>"']/g, (char) => ENTITIES[char]);
}
