/**
 * JSON as text, on one line: ", " and ": " stand between its parts, as Python's `json.dumps` writes. Where white space is free, small
 * models write nothing else.
 *
 * @module
 */

import { type CodePoints, complement, contains, intersection, pointsOf, union } from "../grammar/code_points.ts";
import { choice, type Expression, literal, oneOf, points, repeat, sequence } from "../grammar/expression.ts";

/** Code points that stand for themselves between quotes. */
const PLAIN: CodePoints = complement(union([0, 0x1f], pointsOf('"\\')));
/** Code points that do not, each with its own escape. */
const ESCAPES: readonly (readonly [point: number, escape: Expression])[] = [
  ...Array.from({ length: 32 }, (_, point) => String.fromCodePoint(point)),
  '"',
  "\\",
].map((char) => [char.codePointAt(0)!, literal(JSON.stringify(char).slice(1, -1))] as const);

const HEX = oneOf("0123456789abcdefABCDEF");

/** A character of a string: itself, or any escape of JSON but one of half a surrogate pair. */
export const ANY_CHARACTER: Expression = choice(
  points(PLAIN),
  sequence(literal("\\"), oneOf('"\\/bfnrt')),
  sequence(
    literal("\\u"),
    choice(
      sequence(oneOf("0123456789abcefABCEF"), repeat(HEX, 3, 3)),
      sequence(oneOf("dD"), oneOf("01234567"), repeat(HEX, 2, 2)),
      sequence(
        oneOf("dD"),
        oneOf("89abAB"),
        repeat(HEX, 2, 2),
        literal("\\u"),
        oneOf("dD"),
        oneOf("cdefCDEF"),
        repeat(HEX, 2, 2),
      ),
    ),
  ),
);

/** A character of a set, as `JSON.stringify` writes it: escaped if it has to be. */
export function written(set: CodePoints): Expression {
  const escapes = ESCAPES.filter(([point]) => contains(set, point));
  return choice(points(intersection(set, PLAIN)), ...escapes.map(([, escape]) => escape));
}

/** Exactly a value. */
export function literalJson(value: unknown): Expression {
  return literal(jsonText(value));
}

/** The text of a value. */
export function jsonText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(jsonText).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(([key, part]) => `${JSON.stringify(key)}: ${jsonText(part)}`).join(", ")}}`;
}

/** Something between quotes. */
export function quotedText(inner: Expression): Expression {
  return sequence(literal('"'), inner, literal('"'));
}

/** Any string. */
export function anyString(): Expression {
  return quotedText(repeat(ANY_CHARACTER, 0, Infinity));
}

/** Parts with ", " between them. */
export function listed(part: Expression): Expression {
  return choice(sequence(part, repeat(sequence(literal(", "), part), 0, Infinity)), sequence());
}

/** A name of a member that is none of some: as `JSON.stringify` writes it, so that none comes again in another spelling. */
export function otherName(names: readonly string[]): Expression {
  if (names.length === 0) return anyString();
  return { kind: "lazy", make: () => quotedText(otherText(names)) };
}

/** Texts that are none of some: a graph of their beginnings, from which any other character leads to free text. */
function otherText(texts: readonly string[]): Expression {
  const edges: [number, Expression, number][] = [];
  const children: Map<string, number>[] = [new Map(), new Map()];
  const [start, free] = [0, 1];
  const refused = new Set<number>();
  for (const text of texts) {
    let at = start;
    for (const char of text) {
      const known = children[at].get(char);
      const next = known ?? children.push(new Map()) - 1;
      children[at].set(char, next);
      at = next;
    }
    refused.add(at);
  }
  for (const [node, next] of children.entries()) {
    for (const [char, to] of next) edges.push([node, literal(JSON.stringify(char).slice(1, -1)), to]);
    const others = complement(pointsOf([...next.keys()].join("")));
    edges.push([node, { kind: "lazy", make: () => written(others) }, free]);
  }
  return {
    kind: "graph",
    nodes: children.length,
    edges,
    ends: [...children.keys()].filter((node) => !refused.has(node)),
  };
}
