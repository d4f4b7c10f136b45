/**
 * The grammar of a source in one of the languages of `responseFormat`.
 *
 * @module
 */

import { automatonOf, expressionOf } from "./grammar/code_automaton.ts";
import { parseEbnf } from "./grammar/ebnf.ts";
import { points, type Rules } from "./grammar/expression.ts";
import { parseRegex } from "./grammar/regex.ts";
import { callRules } from "./json/calls.ts";
import { schemaRules } from "./json/schema.ts";
import type { GrammarSource } from "./protocol.ts";

/**
 * Translates a source. Throws an Error that says what is wrong with it, without work that takes long: automata are made when the grammar is
 * compiled.
 */
export function rulesOf(source: GrammarSource): Rules {
  switch (source.kind) {
    case "json":
      return schemaRules(JSON.parse(source.text), source.strict);
    case "calls":
      return callRules(source.demand);
    case "ebnf":
      return parseEbnf(source.text);
    case "regex": {
      const pattern = parseRegex(source.text);
      return [{ kind: "lazy", make: () => expressionOf(automatonOf(pattern, true), points) }];
    }
  }
}
