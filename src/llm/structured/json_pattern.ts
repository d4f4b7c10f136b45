/**
 * Patterns of JSON schema as patterns of the text between the quotes of a JSON string: there a quote and a backslash have a
 * backslash before them, and control characters do not occur.
 *
 * @module
 */

/** What stands for itself between the quotes, without brackets. */
const NOT_PLAIN = '"\\\\\\x00-\\x1f';
/** Any character that stands for itself. */
const PLAIN = `[^${NOT_PLAIN}]`;
/** What classes of a pattern are between the quotes. */
const CLASSES: Readonly<Record<string, string>> = {
  s: " ",
  S: `[^ \\u00a0${NOT_PLAIN}]`,
  D: `[^0-9${NOT_PLAIN}]`,
  W: `[^a-zA-Z0-9_${NOT_PLAIN}]`,
};

/** A string of `least` to `most` code points, as a pattern. */
export function lengthPattern(least: number, most: number | undefined): string {
  return `${PLAIN}{${least},${most ?? ""}}`;
}

/** The pattern of what JSON writes for the strings that `pattern` matches. Throws a RangeError that says what cannot be written. */
export function jsonPattern(pattern: string): string {
  let out = "";
  for (let at = 0; at < pattern.length;) {
    const char = pattern[at];
    if (char === "[") {
      const end = classEnd(pattern, at);
      out += jsonClass(pattern.slice(at + 1, end));
      at = end + 1;
    } else if (char === "\\") {
      const next = pattern[at + 1] ?? "";
      if (/[nrtfv0xuc]/.test(next)) throw new RangeError(`"\\${next}", an escaped character`);
      out += next === "\\" ? "\\\\\\\\" : next === '"' ? '\\\\"' : CLASSES[next] ?? char + next;
      at += 2;
    } else {
      if (char < " ") throw new RangeError("a control character");
      out += char === "." ? PLAIN : char === '"' ? '\\\\"' : char;
      at++;
    }
  }
  return out;
}

/** Where a class that begins at `from` ends. */
function classEnd(pattern: string, from: number): number {
  for (let at = from + 1; at < pattern.length; at++) {
    if (pattern[at] === "\\") at++;
    else if (pattern[at] === "]") return at;
  }
  throw new RangeError('"[" without "]"');
}

function jsonClass(body: string): string {
  const negated = body.startsWith("^");
  if (negated) {
    if (/\\[SDWnrtfvxuc]/.test(body)) throw new RangeError(`the class [${body}]`);
    return `[${body.replaceAll("\\s", " \\u00a0")}${NOT_PLAIN}]`;
  }
  if (/\\[SDWnrtfvxuc]/.test(body)) throw new RangeError(`the class [${body}]`);
  const plain = body.replaceAll("\\s", " ");
  const matches = new RegExp(`[${plain}]`, "u");
  const special = ['"', "\\", ...Array.from({ length: 32 }, (_, code) => String.fromCharCode(code))];
  if (special.some((char) => matches.test(char))) {
    throw new RangeError(`the class [${body}], which has quotes, backslashes or control characters in it`);
  }
  return `[${plain}]`;
}
