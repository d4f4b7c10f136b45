/**
 * Flags for the form of an answer.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import { quoted } from "../graph/error.ts";
import { checkOneOf, type Flags, UsageError, type Values } from "./flags.ts";

/** The flags. */
export const FORMAT_FLAGS = {
  "json-schema": {
    value: "SCHEMA",
    help: "answer with JSON of this schema: a file, or its text",
    meant: ["schema", "j", "json-schema-file"],
  },
  "response-format": {
    value: "NAME",
    help: "json answers with a JSON object, text with any text (text)",
    meant: ["format"],
  },
} as const satisfies Flags;

/** Names of --response-format. */
const FORMATS = ["text", "json"] as const;

/** The response format of the flags. Throws a {@link UsageError} if they ask for two things, or a schema cannot be read. */
export function readFormat(values: Values<typeof FORMAT_FLAGS>): lm.ResponseFormat | undefined {
  const { "json-schema": schema, "response-format": name } = values;
  if (schema !== undefined && name !== undefined) {
    throw new UsageError("--json-schema and --response-format exclude each other");
  }
  if (schema !== undefined) return { type: "json_schema", schema: readSchema(schema) };
  if (name === undefined) return undefined;
  return { type: checkOneOf("--response-format", name, FORMATS) === "json" ? "json_object" : "text" };
}

function readSchema(given: string): lm.JsonSchema {
  const inline = given.trimStart().startsWith("{");
  const where = inline ? "--json-schema" : `--json-schema ${quoted(given)}`;
  let text = given;
  try {
    if (!inline) text = Deno.readTextFileSync(given);
  } catch (cause) {
    throw new UsageError(`${where} cannot be read: ${(cause as Error).message}`);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new UsageError(`${where} is no JSON: ${quoted((cause as Error).message)}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as lm.JsonSchema;
  throw new UsageError(`${where} is no JSON object`);
}
