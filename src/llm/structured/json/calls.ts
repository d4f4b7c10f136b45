/**
 * Calls of functions as grammars: what an answer that has to begin with a call may be, in the format of a model's family.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import { CALL_FORMATS, type SyntaxPart } from "../../answer/call_formats.ts";
import { type CodePoints, EVERY } from "../grammar/code_points.ts";
import {
  choice,
  controlToken,
  EMPTY,
  type Expression,
  literal,
  points,
  repeat,
  type Rules,
  sequence,
  shifted,
} from "../grammar/expression.ts";
import type { CallDemand } from "../protocol.ts";
import { SchemaError, schemaRules } from "./schema.ts";

/** Characters of the ids that Mistral's models write. */
const ID_CHARACTERS: CodePoints = [0x30, 0x39, 0x41, 0x5a, 0x61, 0x7a];
const ID_LENGTH = 9;

/** The grammar of calls. Throws a {@link SchemaError} that names the function whose schema cannot be held. */
export function callRules({ format, tokens, functions, parallel }: CallDemand): Rules {
  const rules: Expression[] = [EMPTY];
  const { before, call, between, after } = CALL_FORMATS[format].syntax;
  const write = (parts: readonly SyntaxPart[], name: string, values: Expression): Expression =>
    sequence(...parts.map((part) => written(part, tokens, name, values)));
  const plain = (parts: readonly SyntaxPart[]): Expression => write(parts, "", EMPTY);
  const calls = functions.map(({ name, schema, strict }) => {
    const index = rules.length;
    rules.push(...argumentRules(name, schema, strict).map((rule) => shifted(rule, index)));
    return write(call, name, { kind: "rule", index });
  });
  const one = choice(...calls);
  const more = between && parallel ? [repeat(sequence(plain(between), one), 0, Infinity)] : [];
  rules[0] = sequence(plain(before), one, ...more, plain(after));
  return rules;
}

function argumentRules(name: string, schema: string, strict: boolean): Rules {
  try {
    return schemaRules(JSON.parse(schema), strict);
  } catch (error) {
    if (error instanceof SchemaError) {
      throw new SchemaError(`of the function ${quoted(name)}, ${error.message}`);
    }
    throw error;
  }
}

function written(part: SyntaxPart, tokens: readonly string[], name: string, values: Expression): Expression {
  if (typeof part === "string") return textWith(part, tokens);
  switch (part.kind) {
    case "NAME":
      return literal(name);
    case "ARGUMENTS":
      return values;
    case "ID":
      return repeat(points(ID_CHARACTERS), ID_LENGTH, ID_LENGTH);
    case "THOUGHTS": {
      const thoughts = repeat(points(EVERY), 0, Infinity);
      return repeat(sequence(textWith(part.begin, tokens), thoughts, textWith(part.end, tokens)), 0, 1);
    }
  }
}

/** A text in which marks that are control tokens stand for these. */
function textWith(text: string, tokens: readonly string[]): Expression {
  const [token, at] = tokens.map((each) => [each, text.indexOf(each)] as const)
    .filter(([, index]) => index >= 0)
    .sort((a, b) => a[1] - b[1])[0] ?? [];
  if (token === undefined) return literal(text);
  return sequence(literal(text.slice(0, at)), controlToken(token), textWith(text.slice(at + token.length), tokens));
}
