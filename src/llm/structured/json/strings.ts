/**
 * Strings of a schema: their lengths, patterns and formats, all of which count.
 *
 * @module
 */

import { automatonOf, bothOf, type CodeAutomaton, expressionOf, lengthAutomaton } from "../grammar/code_automaton.ts";
import { type Expression, NEVER, repeat } from "../grammar/expression.ts";
import { parseRegex, type Pattern } from "../grammar/regex.ts";
import { FORMAT_PATTERNS } from "./formats.ts";
import { quotedText, written } from "./text.ts";

/** Limits of a string. */
export interface StringLimits {
  readonly min: number;
  readonly max: number;
  /** Patterns; `whole` matches all of the string, others a part of it. */
  readonly patterns: readonly { readonly pattern: Pattern; readonly whole: boolean }[];
}

/** The pattern of the whole string of a format. */
export function formatPattern(format: string): Pattern {
  return parseRegex(FORMAT_PATTERNS[format]);
}

/** Strings of a `character`, within limits. Where there are patterns, characters are written as `JSON.stringify` does. */
export function strings({ min, max, patterns }: StringLimits, character: Expression): Expression {
  if (min > max) return NEVER;
  if (patterns.length === 0) return quotedText(repeat(character, min, max));
  return {
    kind: "lazy",
    make: () => {
      const automata: CodeAutomaton[] = patterns.map(({ pattern, whole }) => automatonOf(pattern, whole));
      if (min > 0 || max < Infinity) automata.push(lengthAutomaton(min, max));
      return quotedText(expressionOf(automata.reduce(bothOf), written));
    },
  };
}
