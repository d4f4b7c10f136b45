/**
 * Grammars over bytes: what the languages of `responseFormat` (schemas, regular expressions, EBNF) are translated to.
 *
 * @module
 */

import { type CodePoints, NONE, pointsOf } from "./code_points.ts";

/** An expression that a part of a text matches. */
export type Expression =
  /** One byte of a range. */
  | { readonly kind: "byte"; readonly first: number; readonly last: number }
  /** One code point of a set, in UTF-8. */
  | { readonly kind: "points"; readonly set: CodePoints }
  /** All parts, one after the other. */
  | { readonly kind: "sequence"; readonly parts: readonly Expression[] }
  /** One of the parts; without parts, nothing. */
  | { readonly kind: "choice"; readonly parts: readonly Expression[] }
  /** A part several times; `max` may be Infinity. */
  | { readonly kind: "repeat"; readonly part: Expression; readonly min: number; readonly max: number }
  /** An expression that is made when it is needed, so that parsing a grammar stays quick. */
  | { readonly kind: "lazy"; readonly make: () => Expression }
  /** A rule of the grammar, by its index. */
  | { readonly kind: "rule"; readonly index: number }
  /** A path through a graph from node 0 to one of its ends. An edge without a part takes no byte. */
  | {
    readonly kind: "graph";
    readonly nodes: number;
    readonly edges: readonly (readonly [from: number, part: Expression | undefined, to: number])[];
    readonly ends: readonly number[];
  };

/** A grammar: rules by index, of which the first one is the whole text. */
export type Rules = readonly Expression[];

/** The empty text. */
export const EMPTY: Expression = { kind: "sequence", parts: [] };
/** No text. */
export const NEVER: Expression = { kind: "choice", parts: [] };

/** Parts one after the other. */
export function sequence(...parts: readonly Expression[]): Expression {
  return parts.length === 1 ? parts[0] : { kind: "sequence", parts };
}

/** One of several parts. */
export function choice(...parts: readonly Expression[]): Expression {
  return parts.length === 1 ? parts[0] : { kind: "choice", parts };
}

/** A part `min` to `max` times. */
export function repeat(part: Expression, min: number, max: number): Expression {
  return { kind: "repeat", part, min, max };
}

/** One code point of a set. */
export function points(set: CodePoints): Expression {
  return { kind: "points", set };
}

/** One character of those of a text. */
export function oneOf(chars: string): Expression {
  return points(chars === "" ? NONE : pointsOf(chars));
}

/** Bytes around the text of a control token in a vocabulary. UTF-8 has neither, so texts never match such a token. */
const [CONTROL_BEGIN, CONTROL_END] = [0xff, 0xfe];

/** The bytes that stand for a token in a vocabulary; none for bytes that no text has and that control tokens begin with. */
export function textBytes(text: Uint8Array): Uint8Array | undefined {
  return text.includes(CONTROL_BEGIN) ? undefined : text;
}

/** The bytes that stand for a control token in a vocabulary. */
export function controlBytes(text: Uint8Array): Uint8Array {
  return Uint8Array.of(CONTROL_BEGIN, ...text, CONTROL_END);
}

/** Exactly a control token. */
export function controlToken(text: string): Expression {
  return exactly(controlBytes(new TextEncoder().encode(text)));
}

/** Exactly a text. */
export function literal(text: string): Expression {
  return exactly(new TextEncoder().encode(text));
}

function exactly(bytes: Uint8Array): Expression {
  return { kind: "sequence", parts: Array.from(bytes, (byte) => ({ kind: "byte", first: byte, last: byte })) };
}

/** An expression whose rules lie `by` places further on. */
export function shifted(expression: Expression, by: number): Expression {
  switch (expression.kind) {
    case "byte":
    case "points":
      return expression;
    case "sequence":
    case "choice":
      return { ...expression, parts: expression.parts.map((part) => shifted(part, by)) };
    case "repeat":
      return { ...expression, part: shifted(expression.part, by) };
    case "lazy":
      return { kind: "lazy", make: () => shifted(expression.make(), by) };
    case "rule":
      return { kind: "rule", index: expression.index + by };
    case "graph":
      return {
        ...expression,
        edges: expression.edges.map(([from, part, to]) => [from, part && shifted(part, by), to]),
      };
  }
}
