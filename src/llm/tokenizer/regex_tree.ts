/**
 * The parts of a regular expression, between the parser and the compiler.
 *
 * @module
 */

import type { CharTest } from "./char_set.ts";

/** A regular expression. */
export type RegexNode =
  | { readonly kind: "char"; readonly test: CharTest; readonly key: string; readonly code?: number }
  | { readonly kind: "sequence" | "choice"; readonly items: readonly RegexNode[] }
  | {
    readonly kind: "repeat";
    readonly item: RegexNode;
    readonly min: number;
    readonly max: number;
    readonly mode: "greedy" | "lazy" | "possessive";
  }
  | { readonly kind: "atomic"; readonly item: RegexNode }
  | { readonly kind: "look"; readonly item: RegexNode; readonly behind: boolean; readonly negative: boolean }
  | { readonly kind: "assert"; readonly what: Assertion };

/** Assertions about a place in a text. */
export type Assertion = "lineStart" | "lineEnd" | "start" | "end" | "lastLineEnd" | "boundary" | "noBoundary";

/** Characters that a node takes, if that does not depend on the text. */
export function widthOf(node: RegexNode): number | undefined {
  switch (node.kind) {
    case "char":
      return 1;
    case "sequence":
      return node.items.reduce((sum: number | undefined, item) => add(sum, widthOf(item)), 0);
    case "choice": {
      const widths = new Set(node.items.map(widthOf));
      return widths.size === 1 ? [...widths][0] : undefined;
    }
    case "repeat": {
      const width = widthOf(node.item);
      return width !== undefined && node.min === node.max ? width * node.min : undefined;
    }
    case "atomic":
      return widthOf(node.item);
    default:
      return 0;
  }
}

function add(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? undefined : a + b;
}
